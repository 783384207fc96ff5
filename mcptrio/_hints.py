"""Hints for names that do not exist here, most of them of FastMCP and of the official SDK.

Only the errors about such names import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

_IN_PROCESS: Final = (
    "a client does that: `async with mcptrio.connect(server) as client`, then `client.{name}(...)`; "
    "to answer such requests yourself, use `@server.route(method)`"
)
_SERVE_HTTP: Final = '`await server.serve_http()`, or `server.run("http")` outside of Trio'
_ASGI: Final = "`server.asgi()`"
_ROUTE: Final = "`@server.route(method)`, which adds a handler or replaces a built-in one"
_ACTION: Final = "look at `action`, `accepted` and `value` of what `ctx.elicit` returns"
_AUTH: Final = "the classes for `auth=` are in mcptrio.auth.server: BearerAuth, StaticTokens and ClientCertificates"
_OWN_AUTH: Final = "`auth=` takes a BearerAuth, StaticTokens or a function, see mcptrio.auth.server"
_HOSTS: Final = "its fields are settings of HTTP: allowed_hosts= and allowed_origins="
_LOG: Final = '`await ctx.log("{name}", ...)`'
_LISTS_AND_CALLS: Final = (
    *("list_tools", "call_tool", "list_resources", "list_resource_templates", "read_resource"),
    *("list_prompts", "get_prompt"),
)
_OFTEN_WANTED: Final = (
    "mcptrio",
    "mcptrio.types",
    "mcptrio.errors",
    "mcptrio.auth.server",
    "mcptrio.stores",
    "mcptrio.client",
)
"""Modules whose names are often looked for elsewhere."""

HINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "module": {
        **dict.fromkeys(("FastMCP", "MCPServer"), "the class is `mcptrio.Server`"),
        "ClientSession": "connect to a server with `async with mcptrio.connect(target) as client`",
        "ClientSessionGroup": "`mcptrio.connect_all(...)`",
        "StdioServerParameters": 'pass the command as a list: `mcptrio.connect(["python", "server.py"])`',
        "ToolAnnotations": "`@server.tool(read_only=True, destructive=False)`; the class is in mcptrio.types",
        "McpError": "the class is `mcptrio.MCPError`",
        "ResourceNotFoundError": "the class is `mcptrio.ResourceNotFound`",
        **dict.fromkeys(("UserMessage", "AssistantMessage"), "call `mcptrio.user(text)` or `mcptrio.assistant(text)`"),
        **dict.fromkeys(("AcceptedElicitation", "DeclinedElicitation", "CancelledElicitation"), _ACTION),
        **dict.fromkeys(
            ("InitializationOptions", "NotificationOptions"),
            "nothing is needed for `server.run()` and `await server.serve_stdio()`",
        ),
        **dict.fromkeys(("AuthSettings", "TokenVerifier"), _AUTH),
        "TransportSecuritySettings": _HOSTS,
        "Tasks": "`from mcptrio.extensions.tasks import Tasks`",
        "SqliteStore": "`from mcptrio.stores.sqlite import SqliteStore`",
        "Ui": "`from mcptrio.extensions.apps import Ui`",
        "Skills": "`from mcptrio.extensions.skills import Skills`",
    },
    "server": {
        **dict.fromkeys(("mount", "import_server"), '`server.include(other, prefix="other_")`'),
        "add_middleware": "`server.use(middleware)`",
        **dict.fromkeys(("run_async", "run_stdio_async"), "`await server.serve_stdio()`, or `server.run()`"),
        **dict.fromkeys(("run_http_async", "run_streamable_http_async"), _SERVE_HTTP),
        **dict.fromkeys(("http_app", "streamable_http_app"), _ASGI),
        **dict.fromkeys(("sse_app", "run_sse_async"), '`server.asgi(legacy_sse=True)`, or `server.run("sse")`'),
        "custom_route": "mount `server.asgi()` in a web application that has the route",
        "resource_template": '`@server.resource("notes://{day}")`: a URI with variables is a template',
        "completion": '`@prompt.complete("argument")`, where `prompt` is the decorated function',
        "get_context": "annotate a parameter of the function with `mcptrio.Context`",
        **dict.fromkeys(_LISTS_AND_CALLS, _IN_PROCESS),
        **dict.fromkeys(("name", "version", "title", "icons", "website_url"), "`server.info.{name}`"),
        **dict.fromkeys(("lifespan", "instructions", "limits"), "set it with `Server(..., {name}=...)`"),
        "settings": "settings are keywords of `server.run()`, `serve_http()` and `asgi()`; mcptrio.HttpConfig has them",
        **dict.fromkeys(
            (
                *("request_handlers", "add_request_handler"),
                *("set_logging_level", "subscribe_resource", "unsubscribe_resource"),
            ),
            _ROUTE,
        ),
        "request_context": "annotate a parameter of the function with `mcptrio.Context`",
        "get_capabilities": "`server.capabilities()`",
        "session_manager": "the application of `server.asgi()` runs in its own lifespan",
        "create_initialization_options": "nothing is needed for `server.run()` and `await server.serve_stdio()`",
    },
    "server option": {
        **dict.fromkeys(
            ("auth", "token_verifier", "host", "port", "debug", "log_level", "store", "event_store"),
            'pass it where the server is served: `server.run("http", ...)`, `serve_http()` or `asgi()`',
        ),
        **dict.fromkeys(("json_response", "streamable_http_path"), "settings of HTTP are keywords of `server.run()`"),
        "stateless_http": "there is nothing to set: each client has a session if its protocol version has them",
        **dict.fromkeys(
            (
                "on_call_tool",
                "on_list_tools",
                "on_read_resource",
                "on_list_resources",
                "on_get_prompt",
                "on_list_prompts",
            ),
            "`server.route(method, handler)`",
        ),
        "transport_security": _HOSTS,
        "extensions": "`server.add_extension(extension)`",
        "auth_server_provider": "mcptrio is no authorization server: it checks the tokens of one, see `BearerAuth`",
        "list_page_size": "it is page_size=",
        "strict_input_validation": 'it is arguments="strict"',
        "mask_error_details": "there is nothing to set: only the text of a ToolError reaches the client",
        **dict.fromkeys(("on_duplicate", "on_duplicate_tools"), "there is nothing to set: a second one is an error"),
        "middleware": "`server.use(middleware)`",
        "tools": "`server.add_tool(fn)`",
    },
    "context": {
        "request_context": "its parts are here: `ctx.lifespan`, `ctx.meta`, `ctx.request_id`, `ctx.session`",
        "lifespan_context": "`ctx.lifespan`",
        **dict.fromkeys(
            ("get_state", "set_state"), "`ctx.state`, which lives with the session, or the dict `ctx.data` of a request"
        ),
        **dict.fromkeys(("fastmcp", "mcp_server", "server"), "use the server of your module"),
        "read_resource": "call the function of the resource",
        "create_message": "`await ctx.sample(...)`",
        "client_id": "`ctx.principal.client_id`, where callers are authenticated",
        "session_id": "`ctx.session.id`",
        "get_http_request": "`ctx.http`",
        "headers": "`ctx.http.headers`, over HTTP",
        "close_sse_stream": "`ctx.close_stream()`",
        **dict.fromkeys(
            ("notify_resource_updated", "notify_tools_changed", "notify_resources_changed", "notify_prompts_changed"),
            "`server.{name}(...)`, or `ctx.session.{name}(...)` for one client",
        ),
        **dict.fromkeys(("notice", "critical", "alert", "emergency"), _LOG),
        **dict.fromkeys(
            ("send_tool_list_changed", "send_resource_list_changed", "send_prompt_list_changed"),
            "`server.notify_tools_changed()` and its siblings; `ctx.session` has them for one client",
        ),
    },
    "client": {
        "initialize": "entering `async with` does it",
        "send_ping": "`await client.ping()`",
        "set_logging_level": "`await client.set_log_level(level)`",
        "subscribe_resource": "`await client.subscribe(uri)`, or `client.listen(resources=[uri])`",
        "unsubscribe_resource": "`await client.unsubscribe(uri)`",
        "send_roots_list_changed": "`await client.set_roots(roots)`",
        "close": "`await client.aclose()`, or leave the `async with` block",
        **dict.fromkeys(("get_server_capabilities", "server_capabilities"), "`client.capabilities`"),
        "session": "the client has its methods",
        "initialize_result": "`client.server_info`, `client.capabilities` and `client.instructions`",
    },
    "client option": {
        **dict.fromkeys(("elicitation_handler", "elicitation_callback"), "it is elicit="),
        **dict.fromkeys(("sampling_handler", "sampling_callback"), "it is sample="),
        **dict.fromkeys(("log_handler", "logging_callback"), "it is log="),
        **dict.fromkeys(("message_handler", "message_callback"), "it is on_notification="),
        **dict.fromkeys(("list_roots_callback", "roots_handler"), "it is roots="),
        "progress_handler": "it is on_progress= of `client.call_tool`",
        "read_timeout_seconds": "it is timeout=",
        "sse_read_timeout": "it is timeout=",
        "client_info": "it is info=",
    },
    "HTTP setting": {
        "json_response": "it is json_only=",
        **dict.fromkeys(("streamable_http_path", "mount_path"), "it is path="),
        "stateless_http": "there is nothing to set: each client has a session if its protocol version has them",
        "event_store": "it is store=",
        "transport_security": _HOSTS,
        "token_verifier": _OWN_AUTH,
        "log_level": "configure `logging`, or use `mcptrio run --log-level`",
        "middleware": "mount `server.asgi()` in an application with that middleware",
        "debug": "configure `logging`, or use `mcptrio run --log-level debug`",
    },
    "tool option": {
        "annotations": "they are options of their own: read_only, destructive, idempotent, open_world, title",
        "structured_output": 'it is result="text", for a result without structured content',
        "enabled": "visible= decides for each caller, and server.remove_tool() for all",
        "tags": 'write meta={"tags": [...]}',
    },
    "transport": dict.fromkeys(
        ("streamable-http", "streamable_http", "streamablehttp", "streamableHttp"), "it is http"
    ),
}


def hint(kind: str, name: str, known: Iterable[str] = ()) -> str | None:
    """Return the hint for a wrong name: from the table, or the one of the known names that it resembles."""
    if (found := HINTS[kind].get(name)) is not None:
        return _sentence(found, name)
    from difflib import get_close_matches

    folded = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), folded, n=1)
    return f"did you mean {folded[near[0]]}?" if near else None


def _sentence(found: str, name: str) -> str:
    return ("use " if found.startswith("`") else "") + found.replace("{name}", name)


def missing_attribute(kind: str, owner: Any, name: str) -> Any:
    """Raise the error about an attribute that does not exist, with a hint; for `__getattr__`."""
    if hasattr(type(owner), name):
        return object.__getattribute__(owner, name)  # a property failed: raise its own error
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if (found := HINTS[kind].get(name)) is None:
        raise AttributeError(text, name=name, obj=owner)  # Python itself suggests a name that is near
    raise AttributeError(f"{text}: {_sentence(found, name)}")


def import_of(name: str | None) -> str | None:
    """Return the statement that imports a public name, None if the name is not one of ours."""
    if name is None:  # a NameError that was raised by hand
        return None
    found = HINTS["module"].get(name, "")
    if found.startswith("`from "):
        return found.strip("`")
    for home in _OFTEN_WANTED:
        there = import_module(home)
        names = getattr(there, "__all__", None) or [each for each in vars(there) if _is_own(there, each)]
        if name in names:
            return f"from {home} import {name}"
    return None


def _is_own(module: Any, name: str) -> bool:
    """Return whether a module defines a name: a class or function, or the number of an error."""
    value = vars(module)[name]
    return getattr(value, "__module__", None) == module.__name__ or type(value) is int


def missing_name(module: str, name: str) -> Exception:
    """Return the error about a name that does not exist in `mcptrio` or `mcptrio.server`.

    For a name with a hint it is an ImportError, because `from module import name` drops the text of an AttributeError.
    """
    found = HINTS["module"].get(name)
    if found is None and (statement := import_of(name)) is not None:
        found = f"`{statement}`"
    if found is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return ImportError(f"cannot import name {name!r} from {module!r}: {_sentence(found, name)}", name=module)


def unknown_transport(name: str) -> str:
    """Return the error text for a transport that does not exist."""
    found = hint("transport", name, ("stdio", "http", "sse"))
    return f"unknown transport {name!r}: use stdio, http or sse" + (f" ({found})" if found is not None else "")
