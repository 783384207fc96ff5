"""The checks of a request's head: Host, Origin, content type and Accept.

DNS rebinding lets a web page reach a server on its visitor's machine; the page then sends its own name as Host, or its
own address as Origin. So both are compared exactly, for every method (basic/transports, security warning).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import define, field

from mcptrio._wire.headers import Origin, accepts, media_type, parse_host, parse_origin
from mcptrio.transports.http_server.config import LOOPBACK, HttpConfig

from .cors import VARY, answer_preflight, page_headers
from .message import CLOSE, HttpRequest, Plain, refuse

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@define(eq=False, repr=False)
class Guard:
    """The checks of Host, Origin, and the media types of body and response."""

    config: HttpConfig
    _hosts: frozenset[str] = field(init=False)
    _hosts_with_port: frozenset[tuple[str, int]] = field(init=False)
    _origins: frozenset[Origin] = field(init=False)
    _origins_any_port: frozenset[tuple[str, str]] = field(init=False)
    _headers: frozenset[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        parsed = [_parse_entry(entry) for entry in self.config.hosts if entry != "*"]
        self._hosts = frozenset(name for name, port in parsed if port is None)
        self._hosts_with_port = frozenset((name, port) for name, port in parsed if port is not None)
        self._headers = frozenset(name.lower().encode() for name in self.config.allowed_headers)
        origins = self.config.allowed_origins
        if origins is None:
            names = [name for name in LOOPBACK if name in self._hosts]
            self._origins = frozenset()
            self._origins_any_port = frozenset((scheme, name) for scheme in ("http", "https") for name in names)
        else:
            exact = [entry for entry in origins if entry != "*" and not entry.endswith(":*")]
            self._origins = frozenset(map(parse_origin, exact))
            free = [parse_origin(entry[:-2]) for entry in origins if entry.endswith(":*")]
            self._origins_any_port = frozenset((origin.scheme, origin.host) for origin in free)

    # -- every request

    def check_sender(self, head: HttpRequest) -> Plain | None:
        """Check Host and Origin of a request or a WebSocket handshake."""
        fields = head.fields
        if b"host" not in fields:
            return refuse(400, "a Host header is required")
        host = fields[b"host"].decode("latin-1")
        try:
            name, port = parse_host(host)
            # RFC 9112 section 3.2.2: the target takes precedence over Host, so a request where they differ is an
            # attack.
            if head.target and head.target[:1] not in b"/*" and parse_host(_authority(head.target)) != (name, port):
                return refuse(400, "the request target names another host than the Host header")
        except ValueError:
            # This also rejects two Host headers: joined with a comma they are not a valid name.
            return refuse(400, "the Host header is not a host name with an optional port number")
        if name not in self._hosts and not self._allows_host(name, port):
            return refuse(421, f"Host {host!a:.300} is not served here; HttpConfig.allowed_hosts decides which are")
        if b"origin" not in fields:
            # A cached response for others must not reach a page without its headers; that of a POST is not cached.
            if self.config.allowed_origins and head.method != "POST":
                head.cors = VARY
            return None
        return self._check_origin(head, name, port)

    def _check_origin(self, head: HttpRequest, host: str, port: int | None) -> Plain | None:
        named = self.config.allowed_origins
        if named:
            head.cors = VARY
            if "*" in named:
                head.cors = page_headers(b"*")
                return None
        origin = head.fields[b"origin"].decode("latin-1")
        try:
            page = parse_origin(origin)
        except ValueError:
            page = None
        if page is not None and (page in self._origins or (page.scheme, page.host) in self._origins_any_port):
            if named:
                head.cors = page_headers(head.fields[b"origin"])
            return None
        # A page from this host and port belongs to this server.
        if page is None or page.host != host or page.port != (_PORTS.get(page.scheme) if port is None else port):
            return refuse(
                403, f"pages from {origin!a:.300} are not allowed; HttpConfig.allowed_origins decides which are"
            )
        return None

    def _allows_host(self, name: str, port: int | None) -> bool:
        if "*" in self.config.hosts:
            return True
        return (name, port or 80) in self._hosts_with_port or (name, port or 443) in self._hosts_with_port

    # -- the methods

    def check_post(self, head: HttpRequest, answers: Iterable[str]) -> Plain | None:
        """Check the head of a POST; `answers` are the media types that the response may have."""
        refusal = self.check_sender(head)
        if refusal is not None:
            return refusal
        # Browsers send text/plain to any origin without a CORS preflight; JSON requires one.
        try:
            form = media_type(head.fields.get(b"content-type", b"").decode("latin-1"))
        except ValueError:
            form = ""
        if form != "application/json":
            return refuse(415, "Content-Type must be application/json")
        coding = head.fields.get(b"content-encoding")
        if coding is not None and coding.strip().lower() != b"identity":
            return refuse(415, "Content-Encoding is not supported", headers=((b"accept-encoding", b"identity"),))
        if not accepts(head.fields.get(b"accept", b"").decode("latin-1"), answers):
            return _not_acceptable(answers)
        length = head.fields.get(b"content-length")
        if length is not None:
            if not length.isdigit() or len(length) > 18:
                return refuse(400, "Content-Length is not one number", headers=(CLOSE,))
            if int(length) > self.config.max_body:
                return self.too_large()
        return None

    def check_preflight(self, head: HttpRequest, methods: bytes) -> Plain | None:
        """Answer the preflight of an allowed page; None for any other request. Call it after `check_sender`."""
        return answer_preflight(head, methods, self._headers)

    def check_accept(self, head: HttpRequest, answers: Iterable[str]) -> Plain | None:
        allowed = accepts(head.fields.get(b"accept", b"").decode("latin-1"), answers)
        return None if allowed else _not_acceptable(answers)

    def too_large(self) -> Plain:
        text = f"the body is larger than {self.config.max_body} bytes (HttpConfig.max_body)"
        return refuse(413, text, headers=(CLOSE,))


def _not_acceptable(answers: Iterable[str]) -> Plain:
    return refuse(406, f"Accept must allow {' and '.join(answers)}")


def _authority(target: bytes) -> str:
    """Return the host of a request target that is an absolute URL."""
    rest = target.partition(b"://")[2]
    for end in (b"/", b"?", b"#"):
        rest = rest.partition(end)[0]
    return rest.decode("latin-1")


def _parse_entry(entry: str) -> tuple[str, int | None]:
    if entry.count(":") > 1 and not entry.startswith("["):
        entry = f"[{entry}]"
    return parse_host(entry)
