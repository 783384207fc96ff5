"""The bridge to pydantic, for programs that use it: its schema, its validation, its errors in the form used here.

pydantic is never imported here: a pydantic type in a signature proves that the user's own module has done so.
"""

from __future__ import annotations

import sys
from typing import Any

from mcptrio._schema.faults import Faults, Place, show
from mcptrio._schema.shape import ANY_KIND, JsonSchema, Shape
from mcptrio.errors import DeclarationError

_EXPECTED = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "string": "string",
    "list": "array",
    "dict": "object",
}


def is_model(cls: type) -> bool:
    """Return whether pydantic itself must read this class: a model, a pydantic dataclass, a type such as EmailStr."""
    return "pydantic" in sys.modules and (
        hasattr(cls, "__pydantic_validator__") or hasattr(cls, "__get_pydantic_core_schema__")
    )


def shape_of(type_: Any, defs: dict[str, JsonSchema], *, output: bool) -> Shape:
    """Make the shape of a pydantic type; the definitions that its schema needs are put into `defs`.

    With `output` the schema describes what pydantic writes, with serialization aliases and computed fields.
    """
    pydantic: Any = sys.modules["pydantic"]
    label = getattr(type_, "__name__", None) or str(type_)
    try:
        adapter = pydantic.TypeAdapter(type_)
        schema = adapter.json_schema(mode="serialization" if output else "validation")
        if any(defs.get(name, found) != found for name, found in schema.get("$defs", {}).items()):
            schema = _renamed(adapter, defs, output=output)
    except Exception as exc:  # pydantic raises a dozen kinds here, ImportError and its own among them
        first = str(exc).partition("\n")[0]
        raise DeclarationError(f"pydantic cannot describe `{label}`: {first}") from exc
    defs.update(schema.pop("$defs", {}))
    encode, unwritable = sys.modules["pydantic_core"].to_json, sys.modules["pydantic_core"].PydanticSerializationError
    validate, refused = adapter.validate_json, pydantic.ValidationError

    def load(value: Any, at: Place, faults: Faults) -> Any:
        # In JSON mode, because a strict model refuses what JSON has for a date, a tuple or an enum as Python values.
        try:
            return validate(encode(value))
        except unwritable as exc:
            faults.add(at, f"is no JSON value: {exc}")
        except refused as exc:
            for error in exc.errors(include_url=False, include_context=False):
                _translate(error, at, faults)

    kinds = frozenset({schema["type"]}) if isinstance(schema.get("type"), str) else ANY_KIND
    shape = Shape(schema, load, label=label, kinds=kinds)
    for key, property_ in schema.get("properties", {}).items():
        choices = [property_["const"]] if "const" in property_ else property_.get("enum")
        if choices:
            shape.tags[key] = tuple(choices)
    return shape


def _renamed(adapter: Any, defs: dict[str, JsonSchema], *, output: bool) -> JsonSchema:
    """Number the names of this schema, because another class of the same name is in `defs` already."""
    mode, n = "serialization" if output else "validation", 2
    while True:
        schema: JsonSchema = adapter.json_schema(mode=mode, ref_template=f"#/$defs/{{model}}_{n}")
        schema["$defs"] = {f"{name}_{n}": found for name, found in schema["$defs"].items()}
        if not schema["$defs"].keys() & defs.keys():
            return schema
        n += 1


def _translate(error: dict[str, Any], at: Place, faults: Faults) -> None:
    *parents, last = error["loc"] or (None,)
    for part in parents:
        at = (at, part)
    kind: str = error["type"]
    if kind == "extra_forbidden":
        faults.add(at, f"unexpected field {show(last)}")
        return
    if last is not None:
        at = (at, last)
    if kind == "missing":
        faults.add(at, "required")
        return
    what = kind.partition("_")[0]
    if kind.endswith(("_type", "_parsing")) and what in _EXPECTED:
        faults.add(at, f"expected {_EXPECTED[what]}, got {show(error['input'])}")
        return
    message: str = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind not in ("value_error", "assertion_error"):
        message = f"{message[:1].lower()}{message[1:]}, got {show(error['input'])}"
    faults.add(at, message)
