"""The fields of an elicitation form: how to show each, and how to read a typed line. Pure functions."""

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
# 2025-11-25 client/elicitation, Requested Schema: the formats of a form
_FORMATS: Final = {
    "email": "an email address such as ada@example.org",
    "uri": "a URI such as https://example.org/page",
    "date": "a date such as 2026-01-31",
    "date-time": "a date and time such as 2026-01-31T12:00:00Z",
}


@frozen(kw_only=True)
class FormField:
    """One field of an elicitation form."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    choices: tuple[tuple[Any, str], ...] = ()
    """The allowed values and their titles."""
    several: bool = False
    """Whether several choices may be selected."""

    @property
    def title(self) -> str:
        return str(self.schema.get("title") or self.name)

    @property
    def description(self) -> str:
        return str(self.schema.get("description") or "")

    @property
    def default(self) -> Any:
        return self.schema.get("default")

    def hint(self, kept: Any = None) -> str:
        """Describe the accepted input; Enter takes `kept`, an earlier answer or the default."""
        kind = self.schema.get("type")
        words = {"integer": "whole number", "number": "number", "boolean": "y/n"}.get(str(kind), "")
        parts = ["numbers or names, with commas" if self.several else "number or name" if self.choices else words]
        parts += [text.format(self.schema[key]) for key, text in _BOUNDS if key in self.schema]
        if kept is not None:
            parts.append(f"Enter: {self.show(kept) or 'nothing'}")
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
        """Read the value from a typed line.

        Raises:
            ValueError: the form does not accept it; the text says why.
        """
        return self.check(self._value(text))

    def check(self, value: Any) -> Any:
        """Return the value if the form accepts it.

        Raises:
            ValueError: it does not; the text says why.
        """
        try:
            faults = Checker(self.schema, limits=SchemaLimits()).faults(value, root=self.name)
        except DeclarationError as error:
            raise ValueError(f"the server's form cannot be used: {error}") from error
        if faults:
            raise ValueError(faults[0].partition(": ")[2] or faults[0])
        wanted = _FORMATS.get(str(self.schema.get("format")))
        if wanted is not None and isinstance(value, str) and not _has_format(value, self.schema["format"]):
            raise ValueError(f"expected {wanted}")
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
                    raise ValueError("not a whole number") from None
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
        raise ValueError(f"{text!r} is not one of the choices")


def _has_format(text: str, name: str) -> bool:
    import jsonschema_rs

    # In a schema `format` only annotates, unless validation is turned on.
    return jsonschema_rs.is_valid({"type": "string", "format": name}, text, validate_formats=True)


def _number(text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return int(text) if text.lstrip("+-").isdecimal() else value


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields of a form, in order."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, Mapping):
        return ()
    return tuple(
        _field(name, inner, isinstance(required, list | tuple) and name in required)
        for name, inner in properties.items()
        if isinstance(inner, Mapping)
    )


def _field(name: str, schema: Mapping[str, Any], required: bool) -> FormField:
    items = schema.get("items")
    several = schema.get("type") == "array" and isinstance(items, Mapping)
    choices = _choices(items if several else schema)  # type: ignore[arg-type]  # a mapping if several
    return FormField(name=name, schema=schema, required=required, choices=choices, several=several and bool(choices))


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
