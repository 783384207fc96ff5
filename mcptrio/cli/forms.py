"""The fields of an elicitation's form: what to show of each, and what a typed line means. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from attrs import frozen

from mcptrio._schema.check import Checker, SchemaLimits
from mcptrio.errors import DeclarationError

_YES: Final = frozenset({"y", "yes", "true", "1"})
_NO: Final = frozenset({"n", "no", "false", "0"})
_BOUNDS: Final = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {}"),
    ("maxItems", "at most {}"),
    ("format", "{}"),
)


@frozen(kw_only=True)
class Field:
    """One field of a form."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    choices: tuple[tuple[Any, str], ...] = ()
    """Values, and what the person reads for each."""
    several: bool = False
    """Any number of the choices may be taken."""

    @property
    def title(self) -> str:
        return str(self.schema.get("title") or self.name)

    @property
    def description(self) -> str:
        return str(self.schema.get("description") or "")

    @property
    def default(self) -> Any:
        return self.schema.get("default")

    @property
    def hint(self) -> str:
        """What can be typed."""
        kind = self.schema.get("type")
        words = {"integer": "whole number", "number": "number", "boolean": "y/n"}.get(str(kind), "")
        parts = ["numbers or names, with commas" if self.several else "number or name" if self.choices else words]
        parts += [text.format(self.schema[key]) for key, text in _BOUNDS if key in self.schema]
        if self.default is not None:
            parts.append(f"Enter: {self.show(self.default) or 'nothing'}")
        elif not self.required:
            parts.append("Enter: nothing")
        return ", ".join(part for part in parts if part)

    def show(self, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(self.show(one) for one in value) or "none"
        return str(dict(self.choices).get(value, value)) if isinstance(value, str) else str(value)

    def read(self, text: str) -> Any:
        """The value that a typed line stands for.

        Raises:
            ValueError: it is none that the form takes; the text says why.
        """
        value = self._value(text)
        try:
            faults = Checker(self.schema, limits=SchemaLimits()).faults(value, root=self.name)
        except DeclarationError as error:
            raise ValueError(f"the server's form cannot be used: {error}") from error
        if faults:
            raise ValueError(faults[0].partition(": ")[2] or faults[0])
        return value

    def _value(self, text: str) -> Any:
        if self.several:
            return [self._choice(one.strip()) for one in text.split(",") if one.strip()]
        if self.choices:
            return self._choice(text)
        match self.schema.get("type"):
            case "boolean":
                if text.lower() in _YES | _NO:
                    return text.lower() in _YES
                raise ValueError("answer y or n")
            case "integer":
                try:
                    return int(text)
                except ValueError:
                    raise ValueError("that is no whole number") from None
            case "number":
                return _number(text)
            case "string":
                return text
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

    def _choice(self, text: str) -> Any:
        by_name = {str(value): value for value, _ in self.choices}
        by_title = {title.lower(): value for value, title in self.choices}
        if text in by_name:
            return by_name[text]
        if text.lower() in by_title:
            return by_title[text.lower()]
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1][0]
        raise ValueError(f"{text!r} is none of the choices")


def _number(text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("that is no number") from None
    if not math.isfinite(value):
        raise ValueError("that is no number")
    return int(text) if text.lstrip("+-").isdecimal() else value


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of a form, in its order."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, Mapping):
        return ()
    return tuple(
        _field(name, inner, isinstance(required, list | tuple) and name in required)
        for name, inner in properties.items()
        if isinstance(inner, Mapping)
    )


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    items = schema.get("items")
    several = schema.get("type") == "array" and isinstance(items, Mapping)
    choices = _choices(items if several else schema)  # type: ignore[arg-type]  # a mapping if several
    return Field(name=name, schema=schema, required=required, choices=choices, several=several and bool(choices))


def _choices(schema: Mapping[str, Any]) -> tuple[tuple[Any, str], ...]:
    # 2025-11-25 client/elicitation, Requested Schema: titled choices are `oneOf` or `anyOf`, or `enum` with `enumNames`
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list | tuple):
        options = [one for one in titled if isinstance(one, Mapping) and "const" in one]
        return tuple((one["const"], str(one.get("title", one["const"]))) for one in options)
    values = schema.get("enum")
    if not isinstance(values, list | tuple):
        return ()
    names = schema.get("enumNames")
    titles = [*names] if isinstance(names, list | tuple) else []
    titles += values[len(titles) :]
    return tuple((value, str(title)) for value, title in zip(values, titles, strict=False))
