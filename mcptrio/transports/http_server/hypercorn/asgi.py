"""The ASGI application: moves bytes between an ASGI server and the endpoint. Runs on Trio; see `hosted` for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from ssl import PEM_cert_to_DER_cert
from typing import Any, Final

import trio

from mcptrio.errors import INTERNAL_ERROR
from mcptrio.telemetry import Hub
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.admission import SMALL
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint, Undecided
from mcptrio.transports.http_server.endpoint.message import CLOSE, HttpRequest, Plain, Stream, refuse
from mcptrio.transports.http_server.endpoint.post import Pending
from mcptrio.transports.http_server.endpoint.refusals import report_refusal, report_served

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TARGET_EXTENSION: Final = "mcptrio.target"  # scope["extensions"][...]["target"]: the request target as it was sent
OWNER_EXTENSION: Final = "mcptrio.owner"  # scope["extensions"][...]["set"]: called with the owner of the request
MEMORY_EXTENSION: Final = "mcptrio.message_memory"  # scope["extensions"][...]["use"]: called with a `MessageMemory`
_DRAIN_BYTES: Final = 1024 * 1024
_DRAIN_TIME: Final = 2.0
NOT_OPEN: Final = (
    "the MCP application was not started: its lifespan never ran, because frameworks do not run the lifespan of a "
    "mounted application. Pass it on: `FastAPI(lifespan=app.lifespan)` or `Starlette(lifespan=app.lifespan)`, where "
    "`app = server.asgi()`; in a lifespan of your own, write `async with app.lifespan(): yield`"
)


class AsgiApp:
    """An ASGI application around an endpoint. Its creator opens the runtime, so it has no lifespan."""

    def __init__(self, endpoint: Endpoint | None, config: HttpConfig | None = None) -> None:
        self.endpoint = endpoint
        self.config = config or (endpoint.config if endpoint is not None else HttpConfig())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case other:  # an ASGI server goes on without a lifespan that an application refuses
                raise NotImplementedError(f"this application serves no ASGI scope of the type {other!r}")

    # -- HTTP

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoint
        if endpoint is None:
            await self.refuse_unopened(NOT_OPEN, scope, receive, send)
            return
        head = head_of(scope, self.config)
        line = None
        if self.config.access_log:
            send = line = _AccessLine(endpoint.runtime.hub, head, send)
        try:
            refusal = endpoint.refuse_early(head)
            if refusal is None and endpoint.authenticator is not None:
                refusal = await endpoint.authenticate(head)
            set_owner(scope, head.owner)
            if head.owner != endpoint.runtime.turns.only_owner:
                await endpoint.runtime.turns.take(head.owner)
            if refusal is not None:
                report_refusal(endpoint.runtime.hub, head, refusal)
                await _refuse(head, refusal, receive, send)
                return
            await self._serve(endpoint, head, receive, send)
        finally:
            if head.body_memory:
                endpoint.admission.release_body(head)
            if line is not None:
                line.write()

    async def _serve(self, endpoint: Endpoint, head: HttpRequest, receive: Receive, send: Send) -> None:
        reply: Plain | Stream | Undecided | None
        if head.method == "POST":
            body = await self._read_body(endpoint, head, receive)
            if body is None:
                return
            if isinstance(body, Plain):
                endpoint.admission.release_body(head)  # the refusal lingers
                await _refuse(head, body, receive, send)
                return
        else:
            body = b""
        if self.config.json_only and head.method == "POST":
            reply = await endpoint.answer_watched(head, body, partial(_wait_for_disconnect, receive))
        else:
            reply = await endpoint.answer(head, body)
            del body  # a call may last for minutes, and needs only what was decoded
            if isinstance(reply, Pending):
                reply = await reply.reply()
        endpoint.admission.release_body(head)  # the client may be slow to read the answer
        if type(reply) is Stream:
            await self._send_stream(head, reply, receive, send)
        elif type(reply) is Plain:
            if reply.status >= 400:
                report_refusal(endpoint.runtime.hub, head, reply)
            await (_send_plain(head, reply, send) if head.method == "POST" else _refuse(head, reply, receive, send))

    async def _read_body(self, endpoint: Endpoint, head: HttpRequest, receive: Receive) -> bytes | Plain | None:
        """Read the body; return a refusal if that fails, None if the client went away."""
        size, reserved_at = 0, 0.0
        parts: list[bytes] = []
        with trio.move_on_after(self.config.body_timeout) as timeout:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                if part := message.get("body", b""):
                    size += len(part)
                    if size > self.config.max_body:
                        return endpoint.too_large()
                    parts.append(part)
                    if size > SMALL and not head.body_memory:
                        timeout.deadline = float("inf")  # that time is not the client's
                        if not await endpoint.admission.reserve_body(head):
                            return endpoint.no_room()
                        reserved_at = trio.current_time()
                    if head.body_memory:
                        timeout.deadline = endpoint.admission.body_deadline(reserved_at, size)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        return endpoint.timed_out()

    async def _send_stream(self, head: HttpRequest, reply: Stream, receive: Receive, send: Send) -> None:
        cause = "failed"
        events = reply.events

        @trio.lowlevel.enable_ki_protection
        async def watch(scope: trio.CancelScope) -> None:
            nonlocal cause
            await _wait_for_disconnect(receive)
            cause = "disconnected"
            scope.cancel()

        async def say(message: Message) -> bool:
            with trio.move_on_after(self.config.write_timeout) as timeout:
                await send(message)
            return not timeout.cancelled_caught

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, nursery.cancel_scope)
                headers = [*reply.headers, *head.cors]
                start = {"type": "http.response.start", "status": reply.status, "headers": headers}
                whole = await say(start)
                while whole and (chunk := await events.next()) is not None:
                    whole = await say({"type": "http.response.body", "body": chunk, "more_body": True})
                whole = whole and await say({"type": "http.response.body", "body": b"", "more_body": False})
                cause = "done" if whole else "write timeout"
                nursery.cancel_scope.cancel()
        finally:
            events.detach(cause)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.endpoint is None:
            await self.refuse_unopened(NOT_OPEN, scope, receive, send)
            return
        from mcptrio.transports.websocket.server import serve_websocket

        await serve_websocket(self.endpoint, scope, receive, send)

    async def refuse_unopened(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, because the endpoint is not open, or not here. Nothing here needs Trio."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013, "reason": "not started"})
        else:
            reply = refuse(503, reason, code=INTERNAL_ERROR, headers=(CLOSE,))
            await _send_plain(head_of(scope, self.config), reply, send)


class _AccessLine:
    """The `send` of a request that gets a line in the access log, which needs the status."""

    def __init__(self, hub: Hub, head: HttpRequest, send: Send) -> None:
        self._hub, self._head, self._send = hub, head, send
        self._began, self._status = trio.current_time(), 0

    async def __call__(self, message: Message) -> None:
        self._status = message.get("status", self._status)
        await self._send(message)

    def write(self) -> None:
        if self._status:  # else the client went away first
            report_served(self._hub, self._head, self._status, trio.current_time() - self._began)


def set_owner(scope: Scope, owner: str) -> None:
    """Tell the connection whose request it carries, if the ASGI server is ours."""
    extension = scope.get("extensions", {}).get(OWNER_EXTENSION)
    if extension is not None:
        extension["set"](owner)


def head_of(scope: Scope, config: HttpConfig) -> HttpRequest:
    """Return the head of an ASGI request."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    target: bytes | None = scope.get("extensions", {}).get(TARGET_EXTENSION, {}).get("target") or scope.get("raw_path")
    if path[:1] != "/" and "://" in path:  # a whole URL as the target (RFC 9112 section 3.2.2)
        path = "/" + path.partition("://")[2].partition("/")[2]
    if root and path.startswith(root):
        path = path[len(root) :]
        if path in ("", "/"):
            path = config.path  # mounted at the endpoint's own path
    return HttpRequest(
        method=scope["method"],
        path=path if path == config.path else config.served_path(path),
        headers=scope["headers"],
        query=scope.get("query_string", b""),
        target=target,
        scheme=scope.get("scheme", "http"),
        http_version=scope.get("http_version", "1.1"),
        client=scope.get("client"),
        root=root,
        certificate=_certificate(scope),
    )


def _certificate(scope: Scope) -> bytes | None:
    """Return the client's certificate, if the server verified one (the ASGI TLS extension)."""
    tls = scope.get("extensions", {}).get("tls")
    chain = None if tls is None or tls.get("client_cert_error") else tls.get("client_cert_chain")
    return PEM_cert_to_DER_cert(chain[0]) if chain else None


async def _send_plain(head: HttpRequest, reply: Plain, send: Send) -> None:
    start, body = _start(head, reply), _body(head, reply)
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _refuse(head: HttpRequest, reply: Plain, receive: Receive, send: Send) -> None:
    """Answer before the body was read.

    The rest of the body is read and dropped meanwhile: Hypercorn cannot finish a response while its queue of body
    pieces is full, and a client that is still sending would see a reset instead of the answer. The answer has a length,
    so the client has it at once; the connection closes after it, so the end of the body need not be found.
    """
    if not head.may_have_body:
        await _send_plain(head, reply, send)
        return
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_throw_away, receive)
        await send(_start(head, reply, CLOSE))
        await send({"type": "http.response.body", "body": _body(head, reply), "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _start(head: HttpRequest, reply: Plain, *extra: tuple[bytes, bytes]) -> Message:
    headers = [*reply.headers, *head.cors, *(header for header in extra if header not in reply.headers)]
    if reply.status != 304:  # RFC 9110 section 8.6: there it would be the length of the document
        headers.append((b"content-length", b"%d" % len(reply.body)))
    if not head.http_version.startswith("1"):  # RFC 9113 section 8.2.2: no such header there
        headers = [header for header in headers if header[0] != b"connection"]
    return {"type": "http.response.start", "status": reply.status, "headers": headers}


def _body(head: HttpRequest, reply: Plain) -> bytes:
    return b"" if head.method == "HEAD" else reply.body


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client is gone. The only reader of `receive` then: some servers report a disconnect once."""
    while (await receive())["type"] != "http.disconnect":
        pass


@trio.lowlevel.enable_ki_protection
async def _throw_away(receive: Receive) -> None:
    size = 0
    with trio.move_on_after(_DRAIN_TIME):
        while size < _DRAIN_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
