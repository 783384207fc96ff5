"""A loopback listener for the redirect of a sign-in (RFC 8252 section 7.3).

It serves one path with a fixed page, and accepts only a redirect with the expected state. Nothing from a request is
reflected in a response.
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
_REQUEST_TIME: Final = 2.0  # seconds for a request and its response; a browser on this machine needs milliseconds
_ACCEPT_PAUSE: Final = 0.1


def _response(status: bytes, page: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status, *(f"{name}: {value}".encode() for name, value in _HEADERS)]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(page), b"", page])


_ACCEPTED: Final = _response(b"200 OK", _PAGE)
_NOT_FOUND: Final = _response(b"404 Not Found", _OTHER)


@define(eq=False, repr=False)
class RedirectListener:
    """A loopback socket that receives the redirect. Owns: the socket, and its connections during `wait`."""

    redirect_uri: str
    _socket: trio.socket.SocketType
    _answers: list[dict[str, str]] = field(factory=list, init=False, repr=False)
    _state: str = field(default="", init=False, repr=False)
    _open: dict[trio.CancelScope, None] = field(factory=dict, init=False, repr=False)
    """The open connections, oldest first."""

    async def wait(self, state: str) -> Mapping[str, str]:
        """Wait for the redirect with this state and return its query."""
        self._state = state
        self._answers.clear()
        async with trio.open_nursery() as nursery:
            await self._accept(nursery)
        return self._answers[0]  # the nursery ends only with a redirect or by cancellation

    async def _accept(self, nursery: trio.Nursery) -> None:
        while True:
            try:
                sock, _ = await self._socket.accept()
            except OSError:  # the connection has ended already, or this process has too many open files
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            if len(self._open) >= _MOST_AT_ONCE:
                # Connections that send nothing (browsers open some in advance) must not keep the redirect out.
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.cancel()
            scope = trio.CancelScope(deadline=trio.current_time() + _REQUEST_TIME)
            self._open[scope] = None
            nursery.start_soon(self._serve, trio.SocketStream(sock), scope, nursery.cancel_scope)

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope, waiting: trio.CancelScope) -> None:
        try:
            with scope:
                async with stream:
                    await self._exchange(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._open.pop(scope, None)
        if self._answers:
            waiting.cancel()

    async def _exchange(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=16 * 1024)
        answer = None
        try:
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            if isinstance(event, h11.Request):
                answer = self._read(event)
        except (h11.RemoteProtocolError, ValueError):
            pass  # malformed: answered as any other request that is not the redirect
        await stream.send_all(_ACCEPTED if answer is not None else _NOT_FOUND)
        if answer is not None:
            self._answers.append(answer)

    def _read(self, request: h11.Request) -> dict[str, str] | None:
        """Return the query if this is the expected redirect.

        Raises:
            ValueError: the target is malformed.
        """
        own = urlsplit(self.redirect_uri)
        target = urlsplit(request.target.decode("latin-1"))
        hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
        if request.method != b"GET" or target.path != own.path or hosts != [own.netloc]:
            return None
        query = parse_qsl(target.query, keep_blank_values=True, max_num_fields=50)
        answer = dict(query)
        if len(answer) != len(query):
            return None  # OAuth 2.1 section 3.1: parameters must not repeat
        known = hmac.compare_digest(answer.get("state", "").encode(), self._state.encode())
        return answer if known else None

    def close(self) -> None:
        self._socket.close()


async def open_listener(wanted: str, preferred: str | None) -> RedirectListener:
    """Open a listener at a redirect URI. Port 0 means any port: that of `preferred` if it is free.

    Raises:
        AuthorizationFailed: the URI is not on loopback, or its port is in use.
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
            if os.name != "nt":  # on Windows it would let another program take over the port
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
