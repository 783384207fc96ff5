"""Field names on the wire. The only module that knows camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcptrio import types

_ODD_NAMES: Final[Mapping[str, str]] = {"meta": "_meta"}
# 2026-07-28 basic/index: the prefix of the protocol's own keys in `_meta`
_RESERVED: Final = "io.modelcontextprotocol/"
_WITH_RESERVED_KEYS: Final = ("RequestMeta", "NotificationMeta", "ResultMeta")


def wire_name(name: str, cls: type | None = None) -> str:
    """Return the wire name of the field `name` of `cls`: `mimeType` for `mime_type`."""
    if name in _ODD_NAMES:
        return _ODD_NAMES[name]
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    return _RESERVED + camel if _has_reserved_keys(cls) and name != "progress_token" else camel


def _has_reserved_keys(cls: type | None) -> bool:
    # Compare names first: looking the classes up would import them.
    return cls is not None and cls.__name__ in _WITH_RESERVED_KEYS and cls is getattr(types, cls.__name__)
