"""Parse URI templates into literals and expressions, and expand expressions (RFC 6570, all four levels)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from mcptrio.errors import DeclarationError

MAX_TEMPLATE: Final = 8 * 1024

_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED: Final = frozenset(":/?#[]@!$&'()*+,;=")
_NOT_LITERAL: Final = re.compile(r'[\x00-\x20\x7f\ud800-\udfff"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})')
_VARIABLE: Final = re.compile(
    r"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*+)(\*|:[1-9][0-9]{0,3})?"
)
TRIPLET: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}|[^\w.~:/?#@!$&'()*+,;=\[\]-]", re.ASCII)
"""A triplet, or a character that no URI contains."""


class Operator(Struct, frozen=True):
    """One row of the table in RFC 6570 appendix A."""

    first: str = ""
    separator: str = ","
    named: bool = False
    if_empty: str = ""
    reserved: bool = False  # keep reserved characters and percent-encoded triplets


_OPERATORS: Final[Mapping[str, Operator]] = {
    "": Operator(),
    "+": Operator(reserved=True),
    "#": Operator("#", ",", reserved=True),
    ".": Operator(".", "."),
    "/": Operator("/", "/"),
    ";": Operator(";", ";", named=True),
    "?": Operator("?", "&", named=True, if_empty="="),
    "&": Operator("&", "&", named=True, if_empty="="),
}


class Variable(Struct, frozen=True):
    """One variable of an expression, with its modifier."""

    name: str
    explode: bool
    prefix: int | None


class Expression(Struct, frozen=True):
    """One expression in braces; `text` includes the braces."""

    text: str
    operator: str
    variables: tuple[Variable, ...]


# -- parsing


def parse(text: str) -> Iterator[str | Expression]:
    """Yield the literals and expressions of a template.

    Raises:
        DeclarationError: the text is not a valid template.
    """
    if len(text) > MAX_TEMPLATE:
        raise DeclarationError(f"a URI template may have at most {MAX_TEMPLATE} characters")
    position = 0
    while position < len(text):
        opening = text.find("{", position)
        literal = text[position:] if opening < 0 else text[position:opening]
        if bad := _NOT_LITERAL.search(literal):
            raise DeclarationError(f"{bad[0]!a} must not stand outside of braces in the URI template {text!a}")
        if literal:
            yield literal
        if opening < 0:
            return
        closing = text.find("}", opening)
        if closing < 0:
            raise DeclarationError(f"a brace is not closed in the URI template {text!a}")
        yield _parse_expression(text[opening + 1 : closing], text)
        position = closing + 1


def _parse_expression(body: str, text: str) -> Expression:
    operator = body[0] if body and body[0] in _OPERATORS else ""
    variables: list[Variable] = []
    for spec in body[len(operator) :].split(","):
        found = _VARIABLE.fullmatch(spec)
        if found is None:
            raise DeclarationError(f"{{{body}}} is no expression of RFC 6570, in the URI template {text!a}")
        name, modifier = found.groups()
        prefix = int(modifier[1:]) if modifier and modifier != "*" else None
        variables.append(Variable(name, modifier == "*", prefix))
    return Expression(f"{{{body}}}", operator, tuple(variables))


# -- expansion (RFC 6570 section 3.2)


def expand(expression: Expression, values: Mapping[str, Any]) -> str:
    """Expand one expression with the values of its variables."""
    operator = _OPERATORS[expression.operator]
    pieces: list[str] = []
    for variable in expression.variables:
        value = values.get(variable.name)
        if isinstance(value, Mapping):
            pairs = [(str(key), _scalar(item)) for key, item in value.items() if item is not None]
            pieces += _expand_pairs(operator, variable, pairs)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            pieces += _expand_list(operator, variable, [_scalar(item) for item in value if item is not None])
        elif value is not None:
            encoded = encode(_scalar(value)[: variable.prefix], operator.reserved)
            pieces.append(_named(operator, variable.name, encoded) if operator.named else encoded)
    return operator.first + operator.separator.join(pieces) if pieces else ""


def _expand_list(operator: Operator, variable: Variable, items: list[str]) -> list[str]:
    _refuse_prefix(variable)
    encoded = [encode(item, operator.reserved) for item in items]
    if not encoded:
        return []  # section 2.3: an empty list is undefined
    if variable.explode:
        return [_named(operator, variable.name, item) for item in encoded] if operator.named else encoded
    joined = ",".join(encoded)
    return [f"{variable.name}={joined}" if operator.named else joined]


def _expand_pairs(operator: Operator, variable: Variable, pairs: list[tuple[str, str]]) -> list[str]:
    _refuse_prefix(variable)
    encoded = [(encode(key, operator.reserved), encode(item, operator.reserved)) for key, item in pairs]
    if not encoded:
        return []
    if variable.explode:
        return [_named(operator, key, item) if operator.named else f"{key}={item}" for key, item in encoded]
    joined = ",".join(f"{key},{item}" for key, item in encoded)
    return [f"{variable.name}={joined}" if operator.named else joined]


def _named(operator: Operator, name: str, encoded: str) -> str:
    return f"{name}={encoded}" if encoded else f"{name}{operator.if_empty}"


def _refuse_prefix(variable: Variable) -> None:
    if variable.prefix is not None:
        raise ValueError(f"{variable.name}:{variable.prefix} has a prefix, so its value must be a text")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"a URI template cannot hold a value of type {type(value).__name__}")


def encode(text: str, reserved: bool) -> str:
    """Percent-encode all but unreserved characters; with `reserved`, keep reserved characters and triplets too."""
    if not reserved:
        return "".join(c if c in _UNRESERVED else triplets(c) for c in text)
    encoded: list[str] = []
    position = 0
    while position < len(text):
        c = text[position]
        if c == "%" and TRIPLET.match(text, position):
            encoded.append(text[position : position + 3])
            position += 3
        else:
            encoded.append(c if c in _UNRESERVED or c in _RESERVED else triplets(c))
            position += 1
    return "".join(encoded)


def triplets(c: str) -> str:
    """Percent-encode one character."""
    return "".join(f"%{byte:02X}" for byte in c.encode())


def normalize(uri: str) -> str:
    """Return the form of a URI that its spellings have in common (RFC 3986 section 6.2.2, without letter case).

    Characters that no URI contains are percent-encoded, unreserved ones are not, and triplets are in upper case.
    """
    return _ENCODED.sub(_normal, uri)


def _normal(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) == 1:
        return triplets(text)
    decoded = chr(int(text[1:], 16))
    return decoded if decoded in _UNRESERVED else text.upper()
