"""HTTP requests of the client: redirects, authorization, limits, and translation of httpx2's exceptions."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from typing import Any, Final

import httpx2
import trio
from attrs import define, field, frozen

from mcptrio._settings import check_fields
from mcptrio._wire.headers import media_type
from mcptrio._wire.jsonrpc import LARGE_MESSAGE, Error, RequestId, decode
from mcptrio.errors import ConnectionLost, MCPError, MCPTrioError, Overloaded, RemoteProtocolError
from mcptrio.transports.client import NotDelivered, SessionGone, same_id
from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth
from mcptrio.transports.http_status import meaning_of, retry_after
from mcptrio.transports.retry import Reconnect, Retries
from mcptrio.transports.verification import as_verification

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
CANCELLED: Final = "notifications/cancelled"
_MAX_HOPS: Final = 5
MAX_AUTH: Final = 8
_DIRECT: Final = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
"""Hosts that are reached without the proxies of the environment: what is sent to this machine stays there."""
_REDIRECTS: Final = {"GET": (301, 302, 303, 307, 308), "POST": (307, 308), "DELETE": (307, 308)}
_QUOTED: Final = 200
_TAIL: Final = 0.1
_EXPLANATION: Final = 5.0
"""Seconds for the body of a refusal, whose status is enough."""


class HttpRefused(RemoteProtocolError):
    """The server answered with an HTTP status and without a JSON-RPC message."""

    def __init__(self, message: str, *, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message, http_status=status)
        self.status = status
        self.headers = dict(headers)


class NotAnswered(ConnectionLost):
    """The server did not answer a request in time; it may have handled it."""


class HttpMCPError(MCPError):
    """A JSON-RPC error that came with an HTTP status other than 200."""

    def __init__(self, code: int, message: str, data: Any, *, status: int) -> None:
        super().__init__(code, message, data)
        self.status = status


@frozen(kw_only=True)
class HttpClientConfig:
    """Limits and timeouts of an HTTP client."""

    max_reply: int = 16 * 1024 * 1024
    """Maximum size in bytes of a response that is read, as JSON or as one event of a stream. Raise it for tools that
    return files."""
    connect_timeout: float = 10.0
    """Timeout in seconds for connecting, including TLS and the handshake of a WebSocket."""
    write_timeout: float = 30.0
    """Timeout in seconds for sending one chunk of a request, and for the HTTP response to a cancellation."""
    accept_timeout: float = 900.0
    """Timeout in seconds for the HTTP response to a notification, or to an answer to the server. Raise it together with
    `total_timeout` for a server that responds only when it has handled the message."""
    listen_timeout: float = 2.0
    """Seconds that `connect` waits for the server's own stream to open before it continues without it."""
    goodbye_timeout: float = 2.0
    """Timeout in seconds for ending the session."""
    verify: ssl.SSLContext | bool = field(default=True, converter=as_verification)
    """TLS certificate verification: True uses the usual authorities, the path of a file (PEM) or directory those in it,
    an `ssl.SSLContext` your own, and False (for experiments only) turns it off."""

    def __attrs_post_init__(self) -> None:
        positive = ("max_reply", "connect_timeout", "write_timeout", "accept_timeout")
        check_fields(self, positive=positive, not_negative=("listen_timeout", "goodbye_timeout"))


@define(eq=False, repr=False)
class Http:
    """The sender of HTTP requests to one origin. Borrows: the httpx2 client."""

    client: httpx2.AsyncClient
    url: str
    config: HttpClientConfig
    reconnect: Reconnect
    auth: HttpAuth | None = None
    headers: Mapping[str, str] = field(factory=dict)
    """Headers of the user, sent with every request, to this origin only."""

    @asynccontextmanager
    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        *,
        url: str | None = None,
        timeout: float = inf,
    ) -> AsyncIterator[httpx2.Response]:
        """Return a response whose body is not read yet, after redirects and authorization.

        `timeout` is for the head of each response. It does not run while the user signs in.

        Raises:
            NotDelivered: no connection could be made.
            NotAnswered: the timeout is over.
            ConnectionLost: the connection broke.
            RemoteProtocolError: it redirects to another origin, or too often.
        """
        with translated():
            response = await self._send(method, headers, content, url or self.url, timeout)
            try:
                yield response
            finally:
                await response.aclose()

    async def _send(
        self, method: str, headers: Mapping[str, str], content: bytes | None, url: str, timeout: float
    ) -> httpx2.Response:
        hops = attempts = 0
        about = AuthRequest(method=method, url=url)
        while True:
            signed = await self.auth.authorize(about) if self.auth is not None else {}
            # UTF-8, because an event id that comes back as `Last-Event-ID` may be any text
            whole = httpx2.Headers({"Accept-Encoding": "identity", **self.headers}, encoding="utf-8")
            for name, value in (*headers.items(), *signed.items()):
                whole[name] = value  # also replaces `authorization` with `Authorization`
            request = self.client.build_request(method, about.url, headers=whole, content=content)
            response = None
            with trio.move_on_after(timeout):
                response = await self.client.send(request, stream=True, follow_redirects=False)
            if response is None:
                raise NotAnswered(f"the server did not answer within {timeout:g} s")
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
            # The body and the headers were meant for this origin only.
            raise RemoteProtocolError(f"the server redirects to another origin, {target.scheme}://{target.host}")
        return str(target)

    async def read(self, response: httpx2.Response) -> bytes:
        """Read the whole body.

        Raises:
            RemoteProtocolError: it is larger than `max_reply`.
        """
        limit = self.config.max_reply
        body = bytearray()

        async def take(chunk: bytes) -> bool:
            body.extend(chunk)
            if len(body) > limit:
                raise RemoteProtocolError(f"the server's answer has more than {limit} bytes (max_reply)")
            return False

        await feed(response, take)
        return bytes(body)

    def message_timeout(self, method: str | None) -> float:
        """Return the timeout for the response to a notification or, without a method, to an answer to the server."""
        # Its call is over, and a client may give up many: no response to a cancellation is worth a long wait.
        return self.config.write_timeout if method == CANCELLED else self.config.accept_timeout

    async def post_message(
        self,
        data: bytes,
        headers: Callable[[], Mapping[str, str]],
        *,
        repeat: bool,
        timeout: float,
        url: str | None = None,
        session: bool = False,
    ) -> None:
        """Post a message that has no response, and retry if that fails.

        Args:
            data: The body.
            headers: Called for every attempt.
            repeat: Whether it may arrive twice. Otherwise it is repeated only if it cannot have arrived. It is never
                repeated after the timeout, because a slow server has got it.
            timeout: Seconds in which each attempt has to be answered.
            url: Another URL of this origin.
            session: Whether the request belongs to a session.

        Raises:
            MCPTrioError: it was refused, or the attempts are used up.
        """
        retries = Retries(self.reconnect)
        while True:
            try:
                async with self.send("POST", headers(), data, url=url, timeout=timeout) as response:
                    if response.is_success:
                        return
                    raise await self.refusal(response, session=session)
            except (ConnectionLost, Overloaded) as error:
                if isinstance(error, SessionGone | NotAnswered) or not (repeat or isinstance(error, NotDelivered)):
                    raise
                retries.failed(error)
                await retries.pause(error)

    async def refusal(
        self, response: httpx2.Response, *, session: bool = False, request_id: RequestId | None = None
    ) -> MCPTrioError:
        """Return the exception for a response that is not a success. `session`: the request belongs to a session."""
        if session and meaning_of(response.status_code).no_session:
            return SessionGone("the server no longer knows the session")
        body = b""
        with suppress(RemoteProtocolError), trio.move_on_after(_EXPLANATION):
            body = await self.read(response)
        return refusal_of(response, body, request_id)


def refusal_of(response: httpx2.Response, body: bytes, request_id: RequestId | None = None) -> MCPTrioError:
    """Return the exception for a response that is not a success, from its status and its body."""
    status, kind = response.status_code, kind_of(response)
    error: Error | None = None
    text = " ".join(body[:_QUOTED].decode(errors="replace").split())
    if kind == JSON and len(body) <= LARGE_MESSAGE:
        with suppress(RemoteProtocolError):
            frame = decode(body)
            if isinstance(frame, Error) and (frame.id is None or same_id(frame.id, request_id)):
                error, text = frame, frame.message
    message = f"the server answered HTTP {status}" + (f": {text}" if text else "")
    if kind == HTML and not meaning_of(status).retry:
        message = f"the server answered HTTP {status} with a web page: is it an MCP endpoint?"
    elif kind == HTML:
        message = f"the server answered HTTP {status}"
    if meaning_of(status).retry:
        after = retry_after(response.headers.get("retry-after"))
        return Overloaded(message, retry_after=after, http_status=status)
    if error is not None and request_id is not None:
        return HttpMCPError(error.code, error.message, error.data, status=status)
    return HttpRefused(message, status=status, headers=_plain(response.headers))


async def feed(response: httpx2.Response, take: Callable[[bytes], Awaitable[bool]]) -> bool:
    """Pass the body to `take`, chunk by chunk, until it returns True (return True) or the body ends (return False).

    The body is a chain of async generators that stay open if the loop is left early. Cancelling the read unwinds all of
    them. After `take` returns True, wait a moment for the end of the body, so that the connection can be reused.
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
    """Return the media type of a response, empty if there is none or it cannot be read."""
    try:
        return media_type(response.headers.get("content-type", ""))
    except ValueError:
        return ""


def head_of(request: AuthRequest, response: httpx2.Response) -> AuthResponse:
    """Return the head of a response for the authorization hook."""
    return AuthResponse(request=request, status=response.status_code, headers=_plain(response.headers))


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


@contextmanager
def translated() -> Iterator[None]:
    """Translate exceptions of httpx2."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
        raise NotDelivered(f"no connection to the server{_at(error)}: {_why(error)}") from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise NotDelivered(f"not a URL to connect to: {error}") from error
    except (httpx2.TransportError, httpx2.StreamError) as error:
        raise ConnectionLost(f"the connection to the server broke: {str(error) or type(error).__name__}") from error
    except httpx2.RequestError as error:
        raise RemoteProtocolError(f"the server's HTTP response is invalid: {error}") from error


def _at(error: httpx2.RequestError) -> str:
    try:
        url = error.request.url
    except RuntimeError:  # it was raised before there was a request
        return ""
    return f" at {url.scheme}://{url.netloc.decode()}"


_UNKNOWN_AUTHORITY: Final = (18, 19, 20, 21)  # of OpenSSL: self-signed, or issued by an unknown authority


def _why(error: BaseException) -> str:
    """Return the operating system's message for an error, because httpx2 gives little or no text."""
    below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    match error:
        case ssl.SSLCertVerificationError():
            unknown = error.verify_code in _UNKNOWN_AUTHORITY
            hint = "; SSL_CERT_FILE or HttpClientConfig.verify name the authorities to trust" if unknown else ""
            return f"its certificate is not trusted, {error.verify_message}{hint}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return "it does not speak TLS, so its URL begins with http or ws"
        case ssl.SSLError():
            return f"no TLS, {(error.reason or str(error)).replace('_', ' ').lower()}"
        case OSError(errno=int(number), strerror=str(words)):
            return os.strerror(number) if number > 0 else words  # trio's text repeats the address
    return (_why(below) if below is not None else "") or str(error) or type(error).__name__


@asynccontextmanager
async def lent_or_own(lent: httpx2.AsyncClient | None, config: HttpClientConfig) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield the caller's client, which stays open, or a new one."""
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
    return httpx2.AsyncClient(
        timeout=timeout, limits=limits, verify=config.verify, follow_redirects=False, mounts=_DIRECT
    )
