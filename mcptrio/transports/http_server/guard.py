"""The checks that need only a request's head: who is asked, where the page comes from, which forms are spoken.

DNS rebinding lets a web page reach a server on its visitor's machine; the page then sends its own name as Host, or its
own address as Origin. So both are compared exactly, on every method (basic/transports, security warning).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import define, field

from mcptrio._wire.headers import Origin, accepts, media_type, parse_host, parse_origin
from mcptrio.errors import INVALID_REQUEST

from .config import LOOPBACK, HttpConfig
from .message import CLOSE, Head, Plain, refuse

_MEMO: Final = 1024
_MEMO_BYTES: Final = 512
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@define(eq=False, repr=False)
class Guard:
    """Host, Origin, and the forms of the body and of the answer."""

    config: HttpConfig
    _hosts: frozenset[str] = field(init=False)
    _hosts_with_port: frozenset[tuple[str, int]] = field(init=False)
    _origins: frozenset[Origin] = field(init=False)
    _origins_any_port: frozenset[tuple[str, str]] = field(init=False)
    _passed: set[tuple[bytes | None, ...]] = field(factory=set)
    """Header values that passed before: a client repeats itself with every request."""

    def __attrs_post_init__(self) -> None:
        parsed = [_parse_entry(entry) for entry in self.config.hosts if entry != "*"]
        self._hosts = frozenset(name for name, port in parsed if port is None)
        self._hosts_with_port = frozenset((name, port) for name, port in parsed if port is not None)
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

    def check_sender(self, head: Head) -> Plain | None:
        """Host and Origin, of requests and of WebSocket handshakes."""
        host = head.text(b"host")
        if host is None:
            return refuse(400, "a Host header is required")
        try:
            name, port = parse_host(host)
            target = _authority(head)
            # RFC 9112 section 3.2.2: the target would win over Host, so a request where they differ is a trick.
            if target is not None and parse_host(target) != (name, port):
                return refuse(400, "the request target names another host than the Host header")
        except ValueError:
            # Two Host headers end here as well: joined with a comma they are no name.
            return refuse(400, "the Host header is not a host name with an optional port number")
        if not self._allows_host(name, port):
            return refuse(421, f"Host {host!a:.300} is not served here; HttpConfig.allowed_hosts decides which are")
        origin = head.text(b"origin")
        if origin is None:
            return None
        if "*" in (self.config.allowed_origins or ()):
            return None
        try:
            page = parse_origin(origin)
        except ValueError:
            page = None
        if page is None or not self._allows_origin(page, name, port):
            return refuse(
                403, f"pages from {origin!a:.300} are not allowed; HttpConfig.allowed_origins decides which are"
            )
        return None

    def _allows_host(self, name: str, port: int | None) -> bool:
        if name in self._hosts or "*" in self.config.hosts:
            return True
        return (name, port or 80) in self._hosts_with_port or (name, port or 443) in self._hosts_with_port

    def _allows_origin(self, page: Origin, host: str, port: int | None) -> bool:
        if page in self._origins or (page.scheme, page.host) in self._origins_any_port:
            return True
        # A page that comes from this very host and port is our own.
        return page.host == host and page.port == (_PORTS.get(page.scheme) if port is None else port)

    # -- a POST of a message, a GET of events

    def check_post(self, head: Head, answers: Iterable[str]) -> Plain | None:
        """Everything about a POST; `answers` are the media types that it may be answered with."""
        fields = head.fields
        key = (
            fields.get(b"host"),
            fields.get(b"origin"),
            fields.get(b"content-type"),
            fields.get(b"accept"),
            fields.get(b"content-encoding"),
        )
        if key not in self._passed or (head.target is not None and head.target[:1] != b"/"):
            refusal = self.check_sender(head) or self._check_forms(head, answers)
            if refusal is not None:
                return refusal
            if len(self._passed) < _MEMO and sum(len(v) for v in key if v) < _MEMO_BYTES:
                self._passed.add(key)
        length = fields.get(b"content-length")
        if length is not None:
            if not length.isdigit() or len(length) > 18:
                return refuse(400, "Content-Length is not one number", headers=(CLOSE,))
            if int(length) > self.config.max_body:
                return self.too_large()
        return None

    def _check_forms(self, head: Head, answers: Iterable[str]) -> Plain | None:
        # A page may send text/plain to anybody without being asked first; JSON it may not.
        try:
            form = media_type(head.text(b"content-type") or "")
        except ValueError:
            form = ""
        if form != "application/json":
            return refuse(415, "Content-Type must be application/json")
        coding = head.text(b"content-encoding")
        if coding is not None and coding.strip().lower() != "identity":
            return refuse(415, "Content-Encoding is not supported", headers=((b"accept-encoding", b"identity"),))
        return self.check_accept(head, answers)

    def check_accept(self, head: Head, answers: Iterable[str]) -> Plain | None:
        accept = head.text(b"accept")
        values = () if accept is None else (accept,)
        if all(accepts(values, answer) for answer in answers):
            return None
        return refuse(406, f"Accept must allow {' and '.join(answers)}")

    def too_large(self) -> Plain:
        return refuse(
            413,
            f"the body is larger than {self.config.max_body} bytes (HttpConfig.max_body)",
            code=INVALID_REQUEST,
            headers=(CLOSE,),
        )


def _authority(head: Head) -> str | None:
    """The host in a request target that is a whole URL."""
    target = head.target
    if target is None or target[:1] in (b"/", b"*", b""):
        return None
    rest = target.partition(b"://")[2]
    for end in (b"/", b"?", b"#"):
        rest = rest.partition(end)[0]
    return rest.decode("latin-1")


def _parse_entry(entry: str) -> tuple[str, int | None]:
    if entry.count(":") > 1 and not entry.startswith("["):
        entry = f"[{entry}]"
    return parse_host(entry)
