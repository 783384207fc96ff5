"""The declaration of a tool: its options, and the entry that `declare_tool` builds from a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, cast

import trio
from msgspec import field

from mcptrio import types
from mcptrio._actors.extension import Around
from mcptrio._schema.build import OutputSchema, output_schema
from mcptrio._schema.listing import for_models
from mcptrio._struct import Entity
from mcptrio._wire.objects.converter import write_fields
from mcptrio.errors import DeclarationError
from mcptrio.server.context import Context
from mcptrio.server.features.functions import Function, declare, function_name, ready, require_function
from mcptrio.server.features.headers import header_marks
from mcptrio.server.features.options import check_options
from mcptrio.server.features.scopes import declared_scopes
from mcptrio.server.registry import check_name
from mcptrio.types._fields import as_optional_tuple, as_schema

if TYPE_CHECKING:
    from mcptrio._actors.rates import Rates
    from mcptrio._schema.schema import Schema
    from mcptrio.types import Icon, Tool


def is_content(annotation: Any) -> bool:
    """Return whether a return annotation is a content class, which has no output schema."""
    if not isinstance(annotation, type) or not issubclass(annotation, types.Record):
        return False
    return issubclass(annotation, (*content_classes(), types.CallToolResult))


@cache
def content_classes() -> tuple[type, ...]:
    """Return the content classes; imported on first use, because most tools return text or their own data."""
    return (*types.CONTENT_BY_TYPE.values(), types.UnknownContent, types.Image, types.Audio)


class ToolEntry(Entity):
    """A declared tool: its listing and how to call it."""

    name: str
    function: Function
    wire: dict[str, Any]
    """The tool object in `tools/list`."""
    output: OutputSchema | None = None
    check_arguments: Any = None
    """A `Checker` for a custom input schema."""
    strict: bool = False
    """Whether arguments are read exactly, see `ToolDefaults.arguments`."""
    check_result: Any = None
    result: str = "both"
    max_result_bytes: int | None = None
    timeout: float | None = None
    serial: bool = False
    limiter: trio.CapacityLimiter | None = None
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    rates: Rates | None = None
    requires: tuple[str, ...] = ()
    replay: bool = False
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`x-mcp-header` marks: header name -> path of the argument that it mirrors."""
    around: Around | None = None
    """Wrapper of an extension around each call."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Options that belong to extensions."""
    waits: bool = False
    """Whether a call of it has ever waited, see `lending`."""


class ToolDefaults(TypedDict, total=False):
    """Options of a tool that a `Server` takes too, for all its tools."""

    arguments: Literal["lenient", "strict"]
    """`"lenient"` (default) reads what models write for a value where the schema leaves no doubt, such as `"5"` for an
    integer, and ignores unknown arguments; `"strict"` refuses both."""
    result: Literal["both", "structured", "text"]
    """How a typed result is sent: as structured content and as text (`"both"`, the default), or as one of the two.
    `"text"` lists no output schema."""
    max_result_bytes: int
    """Maximum size of a result. A larger one is sent as a preview of this size and a link to the whole, which the
    caller can read for ten minutes. Such a tool lists no output schema, because a preview has no structure."""


class ToolOptions(ToolDefaults, total=False):
    """Options of a tool."""

    name: str
    """The name that clients use; default: the name of the function."""
    title: str
    """A display name for users."""
    description: str
    """The description that the model reads; default: the docstring."""
    read_only: bool
    """The tool changes nothing: a host may call it without asking the user, and a client may retry it."""
    destructive: bool
    """The tool may destroy data, so a host asks the user first; False means that it only adds."""
    idempotent: bool
    """A second call with the same arguments has no further effect."""
    open_world: bool
    """The tool interacts with systems outside of the server."""
    timeout: float
    """Seconds without progress after which a call is cancelled, in place of `Limits.call_timeout`; the hard limit is
    raised if needed."""
    serial: bool
    """One call at a time in each session, tasks included; where requests have no session, for each principal or client
    address."""
    limit: int
    """Maximum number of concurrent calls in the whole server, for example the size of a database connection pool."""
    inline: bool
    """The function is not async, fast, and never blocks: call it directly instead of in a thread."""
    runs: Literal["trio", "asyncio"]
    """The event loop that the async function runs in: `"trio"` (default), or `"asyncio"` for a function that awaits
    asyncio libraries. Its context works there too."""
    input_schema: Mapping[str, Any] | Schema
    """A custom input schema; the function then takes the arguments as one object. Defaults of its properties are filled
    in."""
    output_schema: Mapping[str, Any] | Schema
    """A custom schema of the structured result; default: derived from the return annotation."""
    icons: Sequence[Icon]
    """Icons that hosts may show."""
    meta: Mapping[str, Any]
    """The tool's `_meta`, for extensions or for your own host."""
    visible: Callable[[Context], bool]
    """Predicate that decides for each request whether the caller may see and call the tool; not async. If it raises,
    the tool is hidden and the log says why."""
    scopes: Sequence[str]
    """Scopes the caller must hold, for example `["orders:write"]`; ignored if callers are not authenticated."""
    rate: float
    """Maximum rate per caller, in calls per second; bursts of one second's worth are allowed."""
    requires: Sequence[str]
    """Client capabilities that the tool requires, for example `["sampling"]`."""
    replay: bool
    """The call may run again from the start when an answer reaches another process."""
    task: bool | Literal["auto", "later"]
    """Run as a task (`mcptrio.extensions.tasks`): `True` always, `"auto"` if the client supports tasks, `"later"` when
    the function calls `begin_task`."""
    ui: Any
    """The `Ui` that shows the results, or its URI (`mcptrio.extensions.apps`)."""


OWN_OPTIONS: Final = frozenset(ToolOptions.__annotations__) - {"task", "ui"}
"""Options that do not belong to an extension."""


def declare_tool(fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[ToolOptions]) -> ToolEntry:
    """Make a tool from a function.

    Raises:
        DeclarationError: the function or an option cannot be used; the text says how to fix it.
    """
    require_function("tool", fn)
    name = check_name("tool", options.get("name") or function_name(fn))
    check_options(options, OWN_OPTIONS, kind="tool", name=name)
    inline, strict = options.get("inline") or False, options.get("arguments") == "strict"
    input_schema, output = as_schema(options.get("input_schema")), as_schema(options.get("output_schema"))
    checker = check_result = structured = None
    try:
        if input_schema is not None:
            from mcptrio._schema.check import Checker
            from mcptrio.server.features.custom_schema import custom_signature

            checker = Checker(input_schema)
            function = ready(fn, custom_signature(fn, input_schema, names), inline=inline, runs=options.get("runs"))
        else:
            function = declare(fn, inline=inline, runs=options.get("runs"), names=names, closed=strict)
        if output is not None:
            from mcptrio._schema.check import Checker

            check_result = Checker(output)
        else:
            structured = output_schema(function.signature.returns, is_content=is_content, names=names)
    except DeclarationError as error:
        raise DeclarationError(f"tool {name!r}: {error}") from error
    schema = function.signature.input_schema
    result, max_result_bytes = options.get("result", "both"), options.get("max_result_bytes")
    listed_output = structured.schema if structured is not None else output
    if result == "text" or max_result_bytes is not None:
        listed_output = None  # server/tools: with an output schema every result MUST be structured
    about = {
        "name": name,
        "input_schema": schema if input_schema is not None else for_models(schema),
        "title": options.get("title"),
        "description": options.get("description", function.signature.description),
        "output_schema": listed_output,
        "annotations": _annotations(options),
        "icons": as_optional_tuple(options.get("icons")),
        "meta": options.get("meta"),
    }
    limit, rate = options.get("limit"), options.get("rate")
    return ToolEntry(
        name=name,
        function=function,
        wire=write_fields(about),
        output=structured,
        check_arguments=checker,
        strict=strict,
        result=result,
        max_result_bytes=max_result_bytes,
        check_result=check_result,
        timeout=options.get("timeout"),
        serial=options.get("serial") or False,
        limiter=None if limit is None else trio.CapacityLimiter(limit),
        visible=options.get("visible"),
        scopes=declared_scopes(options.get("scopes") or ()),
        rates=None if rate is None else _rates(rate),
        requires=tuple(options.get("requires") or ()),
        replay=any(options.get(key) for key in ("replay", "read_only", "idempotent")),
        headers=header_marks(name, schema),
    )


def set_options(entry: ToolEntry, options: Mapping[str, Any]) -> None:
    """Replace options of a declared tool that decide when a call may run: `timeout`, `serial`, `limit`, `rate`.

    Raises:
        DeclarationError: a value is invalid; nothing has changed.
    """
    check_options(options, OWN_OPTIONS, kind="tool", name=entry.name)
    entry.timeout = options.get("timeout", entry.timeout)
    entry.serial = options.get("serial", entry.serial)
    if "limit" in options:
        entry.limiter = trio.CapacityLimiter(options["limit"])
    if "rate" in options:
        entry.rates = _rates(options["rate"])


def tool_options(tool: Tool) -> ToolOptions:
    """Return the options that declare a tool given as a value."""
    hints = tool.annotations
    found: dict[str, Any] = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "icons": tool.icons,
        "meta": tool.meta,
        "read_only": None if hints is None else hints.read_only_hint,
        "destructive": None if hints is None else hints.destructive_hint,
        "idempotent": None if hints is None else hints.idempotent_hint,
        "open_world": None if hints is None else hints.open_world_hint,
    }
    return cast("ToolOptions", {name: value for name, value in found.items() if value is not None})


def _annotations(options: ToolOptions) -> dict[str, Any] | None:
    annotations = {
        "title": options.get("title"),
        "read_only_hint": options.get("read_only"),
        "destructive_hint": options.get("destructive"),
        "idempotent_hint": options.get("idempotent"),
        "open_world_hint": options.get("open_world"),
    }
    return write_fields(annotations) or None


def _rates(per_second: float) -> Rates:
    from mcptrio._actors.rates import Rates  # few tools have one

    return Rates(per_second, max(1.0, per_second))
