"""Validation of the options of tools, resources and prompts: invalid values are refused with a hint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mcptrio import types
from mcptrio.errors import DeclarationError
from mcptrio.server.features.result_fields import Cache
from mcptrio.server.features.scopes import check_visible, declared_scopes
from mcptrio.types._fields import as_schema


def check_options(options: Mapping[str, Any], known: Iterable[str], *, kind: str, name: str) -> None:
    """Check the options of one declaration; None means that an option is not given.

    Raises:
        DeclarationError: an option does not exist, or its value is invalid.
    """
    try:
        for option, value in options.items():
            if option not in known:
                raise DeclarationError(unknown_option(kind, option, known))
            if value is not None:
                _CHECKS[option](option, value)
    except DeclarationError as error:
        raise DeclarationError(f"{kind} {name!r:.200}: {error}") from None


def unknown_option(kind: str, option: str, known: Iterable[str]) -> str:
    from mcptrio._hints import hint

    names = sorted(known)
    found = hint("tool option", option, names)
    hinted = "there" if found is None else f"{found} There" if found.endswith("?") else f"{found}. There"
    return f"there is no {kind} option {option!r}; {hinted} are {', '.join(names)}"


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise `DeclarationError` unless the value is an integer of at least `least`."""
    if type(value) is not int or value < least:
        raise DeclarationError(f"{name} is a whole number of at least {least}, not {value!r:.80}")


def check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise DeclarationError(f"{name} is a string, not {value!r:.80}")


def _check_name(name: str, value: Any) -> None:
    check_text(name, value)
    if not value:
        raise DeclarationError(f"{name} is empty; leave it out to use the name of the function")


def _check_switch(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise DeclarationError(f"{name} is True or False, not {value!r:.80}")


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        raise DeclarationError(f"{name} is a positive number, not {value!r:.80}")


def _check_object(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise DeclarationError(f"{name} is a mapping, not {value!r:.80}")


def _check_schema(name: str, value: Any) -> None:
    if not isinstance(as_schema(value), Mapping):
        raise DeclarationError(f"{name} is a JSON Schema (a mapping, or a Schema), not {value!r:.80}")


def check_icons(name: str, value: Any) -> None:
    if not isinstance(value, Iterable) or not all(isinstance(icon, types.Icon) for icon in value):
        raise DeclarationError(f"{name} is a list of Icon objects, not {value!r:.80}")


CLIENT_CAPABILITIES: Final = ("elicitation", "experimental", "extensions", "roots", "sampling", "tasks")


def _check_requires(name: str, value: Any) -> None:
    if isinstance(value, str):
        raise DeclarationError(f"{name} is a list of capabilities: write {name}=[{value!r}]")
    if not isinstance(value, Iterable):
        raise DeclarationError(f"{name} is a list of capabilities, not {value!r:.80}")
    for capability in value:
        if capability not in CLIENT_CAPABILITIES:
            there_are = ", ".join(CLIENT_CAPABILITIES)
            raise DeclarationError(f"{name}: there is no client capability {capability!r}; there are {there_are}")


def _check_choice(*words: str) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if value not in words:
            raise DeclarationError(f"{name} is {', '.join(map(repr, words[:-1]))} or {words[-1]!r}, not {value!r:.80}")

    return check


def _check_instance(cls_name: str, cls: Callable[[], type]) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, cls()):
            raise DeclarationError(f"{name} is {cls_name}, not {value!r:.80}")

    return check


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "name": _check_name,
    **dict.fromkeys(("title", "description", "mime_type"), check_text),
    **dict.fromkeys(
        ("read_only", "destructive", "idempotent", "open_world", "serial", "inline", "replay", "any_path"),
        _check_switch,
    ),
    **dict.fromkeys(("timeout", "rate"), _check_positive),
    "arguments": _check_choice("lenient", "strict"),
    "result": _check_choice("both", "structured", "text"),
    **dict.fromkeys(("limit", "max_result_bytes"), check_count),
    "runs": _check_choice("trio", "asyncio"),
    "size": lambda name, value: check_count(name, value, least=0),
    "meta": _check_object,
    **dict.fromkeys(("input_schema", "output_schema"), _check_schema),
    "icons": check_icons,
    "annotations": _check_instance("an Annotations object", lambda: types.Annotations),
    "requires": _check_requires,
    "visible": lambda _, value: check_visible(value),
    "scopes": lambda _, value: declared_scopes(value),
    "cache": _check_instance("a Cache", lambda: Cache),
}
