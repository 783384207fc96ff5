"""One HTTP request at a time: redirects, authorization, bounds, and httpx2's exceptions turned into ours."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx2
import trio
from attrs import define, field, frozen, validators

from mcptrio._wire.headers import media_type
from mcptrio._wire.sse import MAX_EVENT
from mcptrio.errors import LinkClosed, McpError, Overloaded, RemoteProtocolError
from mcptrio.transports.carrier import NotDelivered
from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
_MAX_HOPS: Final = 5
MAX_AUTH: Final = 8
_REDIRECTS: Final = {"GET": (301, 302, 303, 307, 308), "POST": (307, 308), "DELETE": (307, 308)}
_QUOTED: Final = 200
_TAIL: Final = 0.1


class HttpRefused(RemoteProtocolError):
    """The server answered with an HTTP status that is no answer to a message."""

    def __init__(self, message: str, *, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, http_status=status)
        self.status = status
        self.headers = dict(headers)


class HttpMcpError(McpError):
    """A JSON-RPC error that came with an HTTP status other than 200."""

    def __init__(self, code: int, message: str, data: Any, *, status: int) -> None:
        super().__init__(code, message, data)
        self.status = status


@frozen(kw_only=True)
class HttpClientConfig:
    """The bounds of an HTTP client, and how patient it is."""

    max_reply: int = field(default=16 * 1024 * 1024, validator=validators.ge(1))
    """Bytes of the largest answer that is read; a server that sends more is refused. Raise it for tools that return
    files."""
    max_event: int = field(default=MAX_EVENT, validator=validators.ge(1))
    """Bytes of the largest event of a stream, as `max_reply`."""
    connect_timeout: float = field(default=10.0, validator=validators.gt(0))
    """Seconds that a connection may take to be made, TLS included."""
    write_timeout: float = field(default=30.0, validator=validators.gt(0))
    """Seconds in which the server must take a piece of what is sent."""
    reconnect_tries: int = field(default=8, validator=validators.ge(0))
    """So many failed attempts in a row to take up a stream again are made; 0: a lost stream stays lost."""
    reconnect_first: float = field(default=0.5, validator=validators.gt(0))
    """The first pause between them in seconds, doubled each time; an explicit `retry` of the server is followed
    instead."""
    reconnect_most: float = field(default=30.0, validator=validators.gt(0))
    """The longest pause between them, in seconds."""
    listen_timeout: float = field(default=2.0, validator=validators.ge(0))
    """Seconds that `connect` waits for the server's own stream to open before it goes on without it."""
    goodbye_timeout: float = field(default=2.0, validator=validators.ge(0))
    """Seconds that ending the session may take."""
    verify: ssl.SSLContext | bool = True
    """How the server's certificate is checked: True with the usual authorities, an `ssl.SSLContext` for one of your
    own, False (for trials only) not at all."""

    def pause(self, failures: int, retry: int | None) -> float:
        """How long to wait before the next attempt, in seconds."""
        if retry is not None:
            return min(max(retry / 1000, 0.1), 60.0)
        most = min(self.reconnect_first * 2.0 ** min(failures, 16), self.reconnect_most)
        return random.uniform(most / 2, most)


@define(eq=False, repr=False)
class Http:
    """Sends requests to one origin. Lent: the httpx2 client."""

    client: httpx2.AsyncClient
    url: str
    config: HttpClientConfig
    auth: HttpAuth | None = None
    headers: Mapping[str, str] = field(factory=dict)
    """The user's own, sent with every request, to this origin only."""

    @asynccontextmanager
    async def send(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, url: str | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """A response whose body is not read yet, after redirects and authorization.

        Raises:
            NotDelivered: no connection could be made.
            LinkClosed: the connection broke.
            RemoteProtocolError: it redirects to somewhere else, or too often.
        """
        with translated():
            response = await self._send(method, headers, content, url or self.url)
            try:
                yield response
            finally:
                await response.aclose()

    async def _send(self, method: str, headers: Mapping[str, str], content: bytes | None, url: str) -> httpx2.Response:
        hops = attempts = 0
        about = AuthRequest(method=method, url=url)
        while True:
            signed = await self.auth.authorize(about) if self.auth is not None else {}
            whole = {"Accept-Encoding": "identity", **self.headers, **headers, **signed}
            request = self.client.build_request(method, about.url, headers=whole, content=content)
            response = await self.client.send(request, stream=True, follow_redirects=False)
            try:
                if response.status_code in _REDIRECTS[method] and "location" in response.headers:
                    hops += 1
                    about = AuthRequest(method=method, url=self._follow(response, hops))
                    await response.aclose()
                    continue
                auth = self.auth if attempts < MAX_AUTH else None
                if auth is not None and await auth.on_response(head_of(about, response)):
                    attempts += 1
                    await response.aclose()
                    continue
            except BaseException:
                await response.aclose()
                raise
            return response

    def _follow(self, response: httpx2.Response, hops: int) -> str:
        if hops > _MAX_HOPS:
            raise RemoteProtocolError(f"the server redirects more than {_MAX_HOPS} times")
        target = response.url.join(response.headers["location"])
        if _origin(target) != _origin(response.url):
            # What is in the body and the headers was meant for this origin.
            raise RemoteProtocolError(f"the server redirects to another origin, {target.scheme}://{target.host}")
        return str(target)

    async def read(self, response: httpx2.Response, limit: int | None = None) -> bytes:
        """The whole body.

        Raises:
            RemoteProtocolError: it is too large.
        """
        limit = limit or self.config.max_reply
        body = bytearray()

        async def take(chunk: bytes) -> bool:
            body.extend(chunk)
            if len(body) > limit:
                raise RemoteProtocolError(f"the server's reply has more than {limit} bytes")
            return False

        await feed(response, take)
        return bytes(body)

    async def refusal(self, response: httpx2.Response, body: bytes | None = None) -> RemoteProtocolError | Overloaded:
        """What a status that is no success means to the caller."""
        status = response.status_code
        if body is None:
            try:
                body = await self.read(response, 64 * 1024)
            except RemoteProtocolError:
                body = b""
        text = " ".join(body[:_QUOTED].decode(errors="replace").split())
        message = f"the server answered HTTP {status}" + (f": {text}" if text else "")
        if kind_of(response) == HTML:
            message = f"the server answered HTTP {status} with a web page: is it an MCP endpoint?"
        if status in (429, 503):
            after = response.headers.get("retry-after", "")
            return Overloaded(message, retry_after=int(after) if after.isdecimal() and len(after) < 7 else 1)
        return HttpRefused(message, status=status, headers=_plain(response.headers))


async def feed(response: httpx2.Response, take: Callable[[bytes], Awaitable[bool]]) -> bool:
    """Give the body to `take`, piece by piece, until it has enough (True) or the body ends (False).

    A body is a pile of generators that nobody closes if the reading just stops: it is stopped by a cancellation, which
    passes through all of them. Who has enough waits a moment for the end, so that the connection can be used again.
    """
    enough = False
    failure: BaseException | None = None
    with translated(), trio.CancelScope() as scope:
        async for chunk in response.aiter_raw():
            if enough or failure is not None:
                continue
            try:
                enough = await take(chunk)
            except BaseException as error:  # noqa: BLE001 - raised below, when the body has been left
                failure = error
                scope.cancel()
            if enough:
                scope.deadline = trio.current_time() + _TAIL
    if failure is not None:
        raise failure
    return enough


def kind_of(response: httpx2.Response) -> str:
    """The media type of a response, empty if there is none that can be read."""
    try:
        return media_type(response.headers.get("content-type", ""))
    except ValueError:
        return ""


def head_of(request: AuthRequest, response: httpx2.Response) -> AuthResponse:
    """What an authorization gets to see of an answer."""
    return AuthResponse(request=request, status=response.status_code, headers=_plain(response.headers))


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


@contextmanager
def translated() -> Iterator[None]:
    """Raise our own exceptions for what goes wrong on the way."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
        raise NotDelivered(f"no connection to the server{_at(error)}: {_why(error)}") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise NotDelivered(f"not a URL to connect to: {error}") from error
    except (httpx2.TransportError, httpx2.StreamError) as error:
        raise LinkClosed(f"the connection to the server broke: {str(error) or type(error).__name__}") from error
    except httpx2.RequestError as error:
        raise RemoteProtocolError(f"the server's HTTP cannot be read: {error}") from error


def _at(error: httpx2.RequestError) -> str:
    try:
        url = error.request.url
    except RuntimeError:  # it was raised before there was a request
        return ""
    return f" at {url.scheme}://{url.netloc.decode()}"


def _why(error: BaseException) -> str:
    """What the system said at the bottom of it: httpx2's own words are few, or none."""
    below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted, {error.verify_message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "it does not speak TLS, so its URL begins with http or ws"
        case ssl.SSLError():
            return f"no TLS, {(error.reason or str(error)).replace('_', ' ').lower()}"
        case OSError(errno=int(number), strerror=str(words)):
            return os.strerror(number) if number > 0 else words  # trio's words repeat the address
    return (_why(below) if below is not None else "") or str(error) or type(error).__name__


@asynccontextmanager
async def lent_or_own(lent: httpx2.AsyncClient | None, config: HttpClientConfig) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody else's client, which stays open, or one of our own."""
    client = lent or open_http(config)
    try:
        yield client
    finally:
        if lent is None:
            with trio.CancelScope(shield=True):
                await client.aclose()


def open_http(config: HttpClientConfig) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(None, connect=config.connect_timeout, write=config.write_timeout)
    limits: Any = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)
    return httpx2.AsyncClient(timeout=timeout, limits=limits, verify=config.verify, follow_redirects=False)
