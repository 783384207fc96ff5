"""The metadata of a type in `Annotated[…]`: descriptions, limits and markers.

Read here: plain strings, `msgspec.Meta`, `annotated_types` objects, pydantic's `Field`, `Doc`, and any object with a
method `__mcp_schema__() -> dict` (merged into the schema), `__mcp_rewrite__(schema) -> dict` (replaces it) or
`__mcp_check__(value) -> str | None` (a fault text, or None). Objects of other libraries are recognised by the module of
their class, so that no library is imported for it. Unknown metadata is ignored, as PEP 593 asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from mcptrio._schema.faults import Faults, Place, show
from mcptrio._schema.scalars import said
from mcptrio._schema.shape import JsonSchema, Shape
from mcptrio.errors import DeclarationError

Check: TypeAlias = Callable[[Any], str | None]

_LIMITS: Final = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_WORDS: Final = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_NUMERIC: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_LENGTHS: Final[dict[tuple[str, type | None], str]] = {
    ("min_length", str): "minLength",
    ("max_length", str): "maxLength",
    ("min_length", list): "minItems",
    ("max_length", list): "maxItems",
    ("min_length", dict): "minProperties",
    ("max_length", dict): "maxProperties",
}
_UNITS: Final[dict[type | None, str]] = {str: "characters", bytes: "bytes", list: "items", dict: "fields"}


class Notes(Struct):
    """The metadata of one `Annotated`, sorted."""

    description: str | None = None
    schema: JsonSchema = field(default_factory=dict)
    limits: list[tuple[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    rewrites: list[Callable[[JsonSchema], JsonSchema]] = field(default_factory=list)
    foreign: bool = False  # holds metadata that only pydantic supports

    def read(self, metadata: Iterable[Any]) -> Notes:
        for meta in metadata:
            self._read_one(meta)
        return self

    def _read_one(self, meta: Any) -> None:
        if isinstance(meta, str):
            self.description = self.description or meta
            return
        module = type(meta).__module__.partition(".")[0]
        if hasattr(meta, "__mcp_schema__"):
            self.schema.update(meta.__mcp_schema__())
        if hasattr(meta, "__mcp_rewrite__"):
            self.rewrites.append(meta.__mcp_rewrite__)
        if hasattr(meta, "__mcp_check__"):
            self.checks.append(meta.__mcp_check__)
        if module in ("msgspec", "annotated_types"):
            self._read_limits(meta)
        elif module == "pydantic":
            self._read_pydantic(meta)
        elif module in ("typing_extensions", "annotated_doc") and hasattr(meta, "documentation"):
            self.description = self.description or meta.documentation

    def _read_limits(self, meta: Any) -> None:
        for name in _LIMITS:
            if (bound := getattr(meta, name, None)) is not None and (name, bound) != ("min_length", 0):
                self.limits.append((name, bound))
        if getattr(meta, "tz", None) is not None:
            self.checks.append(_zoned(meta.tz))
        if callable(predicate := getattr(meta, "func", None)):  # annotated_types.Predicate
            self.checks.append(_predicate(predicate))
        self._read_texts(meta, getattr(meta, "extra_json_schema", None))

    def _read_pydantic(self, meta: Any) -> None:
        if type(meta).__name__ == "FieldInfo":
            extra = meta.json_schema_extra
            self._read_texts(meta, extra if isinstance(extra, dict) else None)
            self.read(meta.metadata)
        elif vars(meta).keys() == {"pattern"} if hasattr(meta, "__dict__") else False:
            self.limits.append(("pattern", meta.pattern))
        else:
            self.foreign = True

    def _read_texts(self, meta: Any, extra: dict[str, Any] | None) -> None:
        self.description = self.description or getattr(meta, "description", None)
        for name in ("title", "examples"):
            if value := getattr(meta, name, None):
                self.schema[name] = value
        self.schema.update(extra or {})

    def apply(self, shape: Shape) -> Shape:
        """Return the shape with these limits and descriptions applied."""
        schema, checks = dict(shape.schema), list(self.checks)
        for name, bound in self.limits:
            keyword, check = _limit(shape, name, bound)
            schema.update(keyword)
            checks.append(check)
        for rewrite in self.rewrites:
            schema = rewrite(schema)
        schema.update(self.schema)
        if self.description:
            schema["description"] = self.description
        if not checks:
            return shape.like(schema=schema)
        inner = shape.load

        def load(value: Any, at: Place, faults: Faults) -> Any:
            before = faults.count
            out = inner(value, at, faults)
            if faults.count == before:
                for check in checks:
                    if (text := check(out)) is not None:
                        faults.add(at, f"{text}, got {show(value)}")
            return out

        return shape.like(schema=schema, load=load)

    def split(self) -> tuple[Notes, Notes]:
        """Split into the limits, for the members of a union, and the rest, for the union itself."""
        return Notes(limits=self.limits), Notes(
            description=self.description, schema=self.schema, checks=self.checks, rewrites=self.rewrites
        )

    def only_for(self, shape: Shape) -> Notes:
        return Notes(limits=[(name, bound) for name, bound in self.limits if _means(shape.natural, name)])


def _means(natural: type | None, name: str) -> bool:
    """Return whether a limit applies to values of this type."""
    if name == "pattern":
        return natural is str
    if name in ("min_length", "max_length"):
        return natural in _UNITS
    return natural not in (None, str, bytes, list, dict)


def _limit(shape: Shape, name: str, bound: Any) -> tuple[JsonSchema, Check]:
    if not _means(shape.natural, name):
        raise DeclarationError(f"`{name}={bound!r}` means nothing for {shape.label}; take it out of the Annotated")
    if name == "pattern":
        pattern = getattr(bound, "pattern", bound)  # pydantic takes compiled ones too
        return {"pattern": pattern}, _matching(pattern)
    if name in ("min_length", "max_length"):
        keyword = _LENGTHS.get((name, shape.natural))  # none for bytes: base64 is longer
        return {keyword: bound} if keyword else {}, _sized(name, bound, _UNITS[shape.natural])
    check = _multiple(bound) if name == "multiple_of" else _compared(name, bound)
    return {_NUMERIC[name]: bound} if shape.natural in (int, float) else {}, check


def _compared(name: str, bound: Any) -> Check:
    text = f"must be {_WORDS[name]} {bound}"

    def check(value: Any) -> str | None:
        try:
            match name:
                case "ge":
                    good = value >= bound
                case "gt":
                    good = value > bound
                case "le":
                    good = value <= bound
                case _:
                    good = value < bound
        except TypeError:  # a date-time with a zone against one without
            good = False
        return None if good else text

    return check


def _multiple(bound: Any) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, int) and isinstance(bound, int):
            good = value % bound == 0
        else:
            from fractions import Fraction  # 0.3 is a multiple of 0.1, but not as binary floats

            good = Fraction(str(value)) % Fraction(str(bound)) == 0
        return None if good else f"must be a multiple of {bound}"

    return check


def _sized(name: str, bound: int, unit: str) -> Check:
    if name == "min_length":
        return lambda value: None if len(value) >= bound else f"must have at least {bound} {unit}"
    return lambda value: None if len(value) <= bound else f"must have at most {bound} {unit}"


def _matching(pattern: str) -> Check:
    # The published schema means ECMA 262, which differs from Python's `re`: `$` matches only at the end, and `\\d` only
    # ASCII digits. The validator of JSON Schemas decides here as it does at the client, and in bounded time.
    from mcptrio._schema.check import Checker

    try:
        fits = Checker({"type": "string", "pattern": pattern}).fits
    except DeclarationError:
        raise DeclarationError(
            f"`pattern={pattern!r}` is not a regular expression of JSON Schema (ECMA 262); write $ for \\Z"
        ) from None
    return lambda value: None if fits(value) else f"must match {pattern}"


def _zoned(wanted: Any) -> Check:
    zoned = wanted is not False

    def check(value: Any) -> str | None:
        if (getattr(value, "tzinfo", None) is not None) == zoned:
            return None
        return "must have a time zone" if zoned else "must not have a time zone"

    return check


def _predicate(function: Callable[[Any], bool]) -> Check:
    def check(value: Any) -> str | None:
        try:
            return None if function(value) else f"must satisfy {getattr(function, '__name__', 'the predicate')}"
        except ValueError as exc:
            return said(exc)

    return check
