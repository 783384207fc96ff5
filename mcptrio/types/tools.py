"""Tools: functions of a server that a model may call."""

from __future__ import annotations

from typing import Literal

from attrs import field

from .base import JsonObject, Record, as_optional_tuple, frozen
from .icons import Icon


@frozen(kw_only=True)
class ToolAnnotations(Record):
    """Hints about what a tool does; a client must not trust them from a server it does not trust."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


@frozen(kw_only=True)
class ToolExecution(Record):
    """How a tool may be run."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


@frozen(kw_only=True)
class Tool(Record):
    """A function the peer may call."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: JsonObject
    output_schema: JsonObject | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    meta: JsonObject | None = None
