"""Forms: the subset of JSON Schema that elicitation allows.

A form is a flat object of strings, numbers, booleans and choices (2025-11-25 client/elicitation, "Requested Schema").
It is made from a record (dataclass, attrs, TypedDict, NamedTuple, Struct, pydantic model) whose fields are the fields
of the form, or from a single scalar type, which becomes a form with one field called `value`.

    @dataclass
    class Shirt:
        size: Literal["s", "m", "l"]                                                    # a choice
        colour: Annotated[str, Titles({"#f00": "Red", "#00f": "Blue"})] = "#f00"        # a choice with titles
        extras: Annotated[list[Literal["logo", "name"]], msgspec.Meta(max_length=1)] = field(default_factory=list)
        email: Annotated[str, Format("email")] | None = None                            # may be left out
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from mcptrio._schema import models, records
from mcptrio._schema.build import Reader
from mcptrio._schema.faults import ArgumentFaults, show
from mcptrio._schema.shape import JsonSchema
from mcptrio.errors import DeclarationError

VALUE: Final = "value"
FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_WORDS: Final = {"title", "description", "default"}
_KEYWORDS: Final[dict[str, set[str]]] = {
    "string": _WORDS | {"type", "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": _WORDS | {"type", "minimum", "maximum"},
    "integer": _WORDS | {"type", "minimum", "maximum"},
    "boolean": _WORDS | {"type"},
    "array": _WORDS | {"type", "minItems", "maxItems", "items"},
}


class Titles:
    """Titles of the values of a choice, as the user sees them: `Annotated[Size, Titles({"s": "Small", "l": "Large"})]`.

    With an Enum or Literal it names some or all of its values, with `str` its keys are the choices, and with a list of
    either it names the items. `legacy` writes `enumNames`, for clients from before 2025-11-25; not for lists.
    """

    __slots__ = ("_items", "legacy")

    def __init__(self, titles: Mapping[str, str], *, legacy: bool = False) -> None:
        if not titles:
            raise DeclarationError("Titles({}) leaves nothing to choose from; name at least one value")
        self._items = tuple(titles.items())
        self.legacy = legacy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Titles) and (self._items, self.legacy) == (other._items, other.legacy)

    def __hash__(self) -> int:
        return hash((self._items, self.legacy))

    def __mcp_rewrite__(self, schema: JsonSchema) -> JsonSchema:
        if schema.get("type") == "array":
            if self.legacy:
                raise DeclarationError("Titles(…, legacy=True) cannot name the items of a list; leave `legacy` out")
            items = schema.get("items", {})
            return {**schema, "items": {"anyOf": self._options(items)}}
        if schema.get("type") != "string":
            raise DeclarationError("Titles need a choice of strings, a str, or a list of either")
        options = self._options(schema)
        rest = {key: value for key, value in schema.items() if key != "enum"}
        if self.legacy:
            return {**rest, "enum": [o["const"] for o in options], "enumNames": [o["title"] for o in options]}
        return {**rest, "oneOf": options}

    def __mcp_check__(self, value: Any) -> str | None:
        # Only called with values that the type itself accepts: this check makes a `str` a choice.
        for item in value if isinstance(value, list | tuple | set | frozenset) else (value,):
            if type(item) is str and item not in dict(self._items):
                return f"expected {' or '.join(show(key) for key, _ in self._items)}"
        return None

    def _options(self, schema: JsonSchema) -> list[dict[str, str]]:
        titles = dict(self._items)
        values = schema.get("enum")
        if values is None:
            values = list(titles)
        elif unknown := titles.keys() - set(values):
            raise DeclarationError(f"Titles name {sorted(unknown)}, which cannot be chosen")
        return [{"const": value, "title": titles.get(value, value)} for value in values]


class Format(Struct, frozen=True):
    """The format of a string input: `Annotated[str, Format("email")]`; email, uri, date or date-time."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise DeclarationError(f"a form knows no format {self.name!r}; use one of {', '.join(sorted(FORMATS))}")

    def __mcp_schema__(self) -> JsonSchema:
        return {"format": self.name}


class Form:
    """The form of a type: the `requestedSchema` to ask with, and the conversion of the answer."""

    __slots__ = ("_nullable", "_reader", "_wrapped", "schema")

    def __init__(self, type_: Any) -> None:
        self._reader = Reader(type_)
        whole = self._reader.schema
        cls = typing.get_origin(type_) or type_
        is_object = isinstance(cls, type) and (records.is_record(cls) or models.is_model(cls))
        self._wrapped = not (is_object and whole.get("type") == "object")
        properties = {VALUE: whole} if self._wrapped else whole.get("properties", {})
        required = {VALUE} if self._wrapped else set(whole.get("required", ()))
        fields: dict[str, JsonSchema] = {}
        nullable: set[str] = set()
        for key, property_ in properties.items():
            fields[key], may_be_null = _flat(key, property_, whole.get("$defs", {}))
            if may_be_null:
                nullable.add(key)
        self._nullable = nullable & required  # required by the constructor, but the user may leave them out
        self.schema: JsonSchema = {"type": "object", "properties": fields}
        if needed := [key for key in fields if key in required - nullable]:
            self.schema["required"] = needed

    def parse(self, content: Mapping[str, Any] | None) -> Any:
        """Return the answer as a value of the type.

        Raises:
            ArgumentFaults: the answer does not fit the form.
        """
        given = {**dict.fromkeys(self._nullable), **(content or {})}
        if not self._wrapped:
            return self._reader.read(given, root="content")
        if VALUE not in given:
            raise ArgumentFaults((f"content.{VALUE}: required",))
        return self._reader.read(given[VALUE], root=f"content.{VALUE}")


@functools.lru_cache(maxsize=256)
def _known_form(type_: Any) -> Form:
    return Form(type_)


def form_of(type_: Any) -> Form:
    """Return the form of a type, made once.

    Raises:
        DeclarationError: a field is not a string, number, boolean or choice.
    """
    try:
        hash(type_)
    except TypeError:  # an Annotated with unhashable metadata
        return Form(type_)
    return _known_form(type_)


def fill_defaults(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with the schema's defaults for omitted fields; for clients."""
    properties = schema.get("properties")
    found = {
        key: property_["default"]
        for key, property_ in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(property_, Mapping) and "default" in property_
    }
    return {**found, **content}


def _flat(key: str, schema: JsonSchema, defs: Mapping[str, JsonSchema]) -> tuple[JsonSchema, bool]:
    """Return one field of the form from a JSON Schema, and whether it may be null."""
    schema = _in_place(schema, defs)
    may_be_null = False
    if "anyOf" in schema:
        members = [_in_place(member, defs) for member in schema["anyOf"]]
        kept = [member for member in members if member != {"type": "null"}]
        may_be_null = len(kept) < len(members)
        if len(kept) != 1:
            raise _not_flat(key, "a union")
        schema = {**kept[0], **{name: value for name, value in schema.items() if name != "anyOf"}}
    if may_be_null and schema.get("default", 0) is None:
        del schema["default"]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    kind = schema.get("type")
    if kind == "array":
        schema["items"] = _choice_items(key, schema, defs)
    elif kind not in _KEYWORDS:
        raise _not_flat(key, f"a value of type {kind}" if isinstance(kind, str) else "a value of no single type")
    elif "enum" in schema and kind != "string":
        raise DeclarationError(
            f"`{key}`: a form can only offer choices that are strings; this one offers {kind} values"
        )
    if schema.get("format") not in FORMATS:
        schema.pop("format", None)
    return {name: value for name, value in schema.items() if name in _KEYWORDS[kind]}, may_be_null


def _choice_items(key: str, schema: JsonSchema, defs: Mapping[str, JsonSchema]) -> JsonSchema:
    items = _in_place(schema.get("items", {}), defs)
    if "oneOf" in items:  # Titles on the item rather than on the list
        return {"anyOf": items["oneOf"]}
    if "anyOf" in items and all("title" in option for option in items["anyOf"]):
        return {"anyOf": items["anyOf"]}
    values = [items["const"]] if "const" in items else items.get("enum")
    if values is None or not all(isinstance(value, str) for value in values):
        raise _not_flat(key, "a list of something else than choices of strings")
    return {"type": "string", "enum": values}


def _in_place(schema: JsonSchema, defs: Mapping[str, JsonSchema]) -> JsonSchema:
    if "$ref" not in schema:
        return dict(schema)
    target = defs[schema["$ref"].rpartition("/")[2]]
    return {**target, **{name: value for name, value in schema.items() if name != "$ref"}}


def _not_flat(key: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"`{key}` is {what}; a form may only hold flat fields: str, int, float, bool, date, datetime, "
        "a choice of strings (Literal or Enum), or a list of such a choice"
    )
