"""The names that fields have on the wire. The only place that knows its camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcptrio import types

_ODD_NAMES: Final[Mapping[str, str]] = {"meta": "_meta"}
# 2026-07-28 basic/index: the keys that the protocol reserves in `_meta`
_RESERVED: Final = "io.modelcontextprotocol/"
_WITH_RESERVED_KEYS: Final = f"{types.__name__}.meta"  # the module, as naming the classes would import them


def wire_name(name: str, cls: type | None = None) -> str:
    """The name that the field `name` (of `cls`) has on the wire: `mime_type` is `mimeType`."""
    if name in _ODD_NAMES:
        return _ODD_NAMES[name]
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    reserved = cls is not None and cls.__module__ == _WITH_RESERVED_KEYS and name != "progress_token"
    return _RESERVED + camel if reserved else camel
