"""The arguments of a tool or prompt, as they stand on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptrio.cli.exits import UsageError

_PLAIN: Final = frozenset({"integer", "number", "boolean", "null", "array", "object"})


def read_object(text: str | None) -> dict[str, Any] | None:
    """The object of `--args`: JSON, `@FILE` with JSON, or `@-` for standard input; None if there is none.

    Raises:
        UsageError: it is no JSON object.
    """
    if text is None:
        return None
    try:
        if text == "@-":
            data = sys.stdin.buffer.read()
        else:
            data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        value = msgspec.json.decode(data)
    except OSError as error:
        raise UsageError(f"--args {text}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"--args is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--args takes a JSON object: {"name": "value"}')
    return value


def read_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """The texts of `--arg name=value`.

    Raises:
        UsageError: one is something else.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--arg {pair}: write name=value")
        if not _is_text(pair):
            raise UsageError(f"--arg {name}: the value is not text in UTF-8")
        found[name] = value
    return found


def _is_text(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:  # bytes that came as they are
        return False


def typed(texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as the values that a tool's input schema wants: `days=3` is a number where it says so.

    Raises:
        UsageError: one cannot be read as what the schema wants.
    """
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {name: _typed(name, text, known.get(name)) for name, text in texts.items()}


def _typed(name: str, text: str, schema: Any) -> Any:
    kinds = _kinds(schema) if isinstance(schema, Mapping) else frozenset()
    if kinds == {"string"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        if kinds and kinds <= _PLAIN:
            raise UsageError(f"--arg {name}={text}: expected {' or '.join(sorted(kinds))}") from None
        return text
    fits = _kind(value) in kinds or (_kind(value) == "integer" and "number" in kinds)
    return text if "string" in kinds and not fits else value


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that a schema allows, where it says so plainly; empty means any."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return frozenset(_kind(value) for value in values) if isinstance(values, list) else frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(kind)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list) and options and all(isinstance(one, Mapping) for one in options):
        found = [_kinds(one) for one in options]
        return frozenset().union(*found) if all(found) else frozenset()
    return frozenset()


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def as_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of a prompt, which are always text."""
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in arguments.items()
    }
