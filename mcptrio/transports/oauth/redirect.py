"""Waits on this machine for the browser to come back (RFC 8252 section 7.3).

Serves one path, answers every request with a fixed page, and believes only a redirect that knows the state. Nothing
of a request is ever shown.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11
import trio
from attrs import define, field

from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.ssrf import UrlRefused, split_origin

_PAGE: Final = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Sign-in</title>
<body><p>The answer has reached the application. You can close this page.</p></body></html>
"""
_OTHER: Final = b"<!doctype html>\n<title>Sign-in</title><p>There is nothing here.</p>\n"
_HEADERS: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Connection", "close"),
)
_MOST_AT_ONCE: Final = 16
_REQUEST_TIME: Final = 10.0


@define(eq=False, repr=False)
class RedirectListener:
    """A socket on loopback that redirects are sent to. Owns: the socket."""

    redirect_uri: str
    _socket: trio.socket.SocketType
    _answers: list[dict[str, str]] = field(factory=list, init=False, repr=False)
    _state: str = field(default="", init=False, repr=False)

    async def wait(self, state: str) -> Mapping[str, str]:
        """The query of the redirect that carries this state."""
        self._state = state
        self._answers.clear()
        async with trio.open_nursery() as nursery:
            await self._accept(nursery)
        return self._answers[0]  # the only way out but cancellation

    async def _accept(self, nursery: trio.Nursery) -> None:
        room = trio.CapacityLimiter(_MOST_AT_ONCE)
        while not nursery.cancel_scope.cancel_called:
            stream, _ = await self._socket.accept()
            nursery.start_soon(self._serve, trio.SocketStream(stream), room, nursery.cancel_scope)

    async def _serve(self, stream: trio.SocketStream, room: trio.CapacityLimiter, waiting: trio.CancelScope) -> None:
        async with stream, room:
            with trio.move_on_after(_REQUEST_TIME):
                try:
                    await self._exchange(stream)
                except (h11.RemoteProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
                    return
        if self._answers:
            waiting.cancel()

    async def _exchange(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=16 * 1024)
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some())
        if not isinstance(event, h11.Request):
            return
        answer = self._read(event)
        page = _PAGE if answer is not None else _OTHER
        head = h11.Response(
            status_code=200 if answer is not None else 404, headers=[*_HEADERS, ("Content-Length", str(len(page)))]
        )
        parts = (head, h11.Data(data=page), h11.EndOfMessage())
        await stream.send_all(b"".join(connection.send(part) or b"" for part in parts))
        if answer is not None:
            self._answers.append(answer)

    def _read(self, request: h11.Request) -> dict[str, str] | None:
        """The query, if this is the redirect that is waited for."""
        own = urlsplit(self.redirect_uri)
        target = urlsplit(request.target.decode("latin-1"))
        hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
        if request.method != b"GET" or target.path != own.path or hosts != [own.netloc]:
            return None
        query = parse_qsl(target.query, keep_blank_values=True, max_num_fields=50)
        answer = dict(query)
        if len(answer) != len(query):
            return None  # OAuth 2.1 section 3.1: no parameter twice
        known = hmac.compare_digest(answer.get("state", "").encode(), self._state.encode())
        return answer if known else None

    def close(self) -> None:
        self._socket.close()


async def open_listener(wanted: str, preferred: str | None) -> RedirectListener:
    """A listener at a redirect URI. Port 0 in it means any: the preferred one's if that is free.

    Raises:
        AuthorizationFailed: the URI is not of this machine, or its port is taken.
    """
    host, port, path = _parts(wanted)
    ports = [port]
    if port == 0 and preferred is not None:
        try:
            former, number, former_path = _parts(preferred)
        except AuthorizationFailed:
            number = 0
        else:
            number = number if (former, former_path) == (host, path) else 0
        ports = [number, 0] if number else [0]
    address = "::1" if host == "::1" else "127.0.0.1"
    for number in ports:
        family = trio.socket.AF_INET6 if ":" in address else trio.socket.AF_INET
        sock = trio.socket.socket(family, trio.socket.SOCK_STREAM)
        try:
            if os.name != "nt":  # there it would let another program take the port over
                sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
            await sock.bind((address, number))
            sock.listen(8)
        except OSError as error:
            sock.close()
            failure = error
            continue
        shown = f"[{host}]" if ":" in host else host
        return RedirectListener(f"http://{shown}:{sock.getsockname()[1]}{path}", sock)
    raise AuthorizationFailed(f"cannot listen for the redirect on port {ports[-1]}: {failure.strerror}")


def _parts(uri: str) -> tuple[str, int, str]:
    try:
        scheme, host, _ = split_origin(uri)
    except UrlRefused as error:
        raise AuthorizationFailed(f"the redirect URI cannot be used: {error}") from None
    if scheme != "http" or host not in ("127.0.0.1", "localhost", "::1"):
        raise AuthorizationFailed("a redirect URI to listen at has to be http:// on 127.0.0.1, localhost or [::1]")
    parts = urlsplit(uri)
    return host, 80 if parts.port is None else parts.port, parts.path or "/"
