"""The HTTP/1.1 framing that is accepted: a request head, and the one table of checks that decides about it.

These are the checks that an ASGI application cannot make, because the server has consumed the framing by then. Both
engines call `check_head`, so both refuse the same requests.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from typing import Final

from attrs import frozen

# RFC 9110 section 5.6.2 (token) and 5.5 (field-value). Control characters other than tab are refused, NUL among them.
TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]"
_REQUEST_LINE: Final = re.compile(rb"(" + TOKEN + rb"++) ([\x21-\x7e]++) HTTP/([0-9]\.[0-9])\r?")
_FIELDS: Final = re.compile(rb"(?:" + TOKEN + rb"++:" + TEXT + rb"*+\r?\n)*+")
_FIELD: Final = re.compile(rb"([^:\r\n]++):([^\r\n]*+)\r?\n")
_FOLD: Final = re.compile(rb"\r?\n[ \t]++")
_TOKENS: Final = re.compile(TOKEN + rb"++(?:[ \t]*+,[ \t]*+" + TOKEN + rb"++)*+")
_WEBSOCKET_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]==")
_LENGTH_DIGITS: Final = 18

REASON_PHRASES: Final = defaultdict(lambda: "Unknown Status", {status.value: status.phrase for status in HTTPStatus})
"""The text that follows the status in a response; some proxies and clients expect one."""


@frozen(kw_only=True)
class FramingLimits:
    """Size limits of a request, and the methods named in a 405."""

    max_header_bytes: int = 16 * 1024
    max_headers: int = 100
    max_body: int | None = None
    """Bytes that a request may declare as its length."""
    allow: str = "GET, POST, DELETE"


@frozen
class Refusal:
    """A request that is answered without being served; the connection closes after it."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """Return the whole response as bytes."""
        body = f"{self.reason}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status} {REASON_PHRASES[self.status]}",
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(body)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


@frozen(kw_only=True, eq=False, slots=False)
class RawHead:
    """One request head; header names are lower-case, values without surrounding space."""

    method: bytes
    target: bytes
    version: bytes  # b"1.0" or b"1.1"
    headers: tuple[tuple[bytes, bytes], ...]

    @cached_property
    def fields(self) -> dict[bytes, list[bytes]]:
        """The values of each header, one for each line."""
        fields: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            fields.setdefault(name, []).append(value)
        return fields

    @cached_property
    def websocket(self) -> bool:
        """Whether it asks to become a WebSocket; any other Upgrade is ignored."""
        return (
            self.method == b"GET"
            and self.version == b"1.1"
            and b"websocket" in self.tokens(b"upgrade")
            and b"upgrade" in self.tokens(b"connection")
        )

    @cached_property
    def expects_continue(self) -> bool:
        return self.version == b"1.1" and b"100-continue" in self.tokens(b"expect")

    @cached_property
    def chunked(self) -> bool:
        return b"transfer-encoding" in self.fields

    @cached_property
    def content_length(self) -> int:
        """The declared length, 0 without one; meaningful once the head passed `check_head`."""
        lengths = self.tokens(b"content-length")
        known = bool(lengths) and lengths[0].isdigit() and len(lengths[0]) <= _LENGTH_DIGITS
        return int(lengths[0]) if known else 0

    def tokens(self, name: bytes) -> list[bytes]:
        """Return the comma-separated values of a header, over all its lines, in lower case."""
        values = self.fields.get(name)
        if values is None:
            return []
        return [token for value in values for part in value.lower().split(b",") if (token := part.strip(b" \t"))]

    def with_length(self, length: bytes) -> RawHead:
        """Return this head with another length in it."""
        name = b"content-length"
        headers = tuple((name, length) if header[0] == name else header for header in self.headers)
        return RawHead(method=self.method, target=self.target, version=self.version, headers=headers)

    @property
    def path(self) -> bytes:
        """The target in origin form: an absolute target without its scheme and authority."""
        if self.target[:1] in (b"/", b"*"):
            return self.target
        rest = self.target.partition(b"://")[2]
        start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=-1)
        if start < 0:
            return b"/"
        return rest[start:] if rest[start : start + 1] == b"/" else b"/" + rest[start:]

    @cached_property
    def encoded(self) -> bytes:
        """The head for the parser behind the gate, with the target in origin form.

        Left out: every `Upgrade` but a WebSocket's (so that HTTP/2 is never spoken, and h11 does not pause over the
        offer), WebSocket extensions (a deflate bomb is inflated before its size is checked), and `Expect` (100 is
        sent when the app first asks for the body, not before).
        """
        dropped = _DROPPED_BUT_FOR_WEBSOCKET if self.websocket else _DROPPED
        lines = [b"%b %b HTTP/%b" % (self.method, self.path, self.version)]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] not in dropped]
        return b"\r\n".join(lines) + b"\r\n\r\n"


_DROPPED_BUT_FOR_WEBSOCKET: Final = frozenset({b"expect", b"sec-websocket-extensions", b"http2-settings"})
_DROPPED: Final = _DROPPED_BUT_FOR_WEBSOCKET | {b"upgrade"}

Check = Callable[[RawHead, FramingLimits], Refusal | None]


# -- the checks, in the order they are asked; the first refusal counts


def _method(head: RawHead, limits: FramingLimits) -> Refusal | None:
    # RFC 9110 section 9.1: methods are case-sensitive. CONNECT would turn the connection into a tunnel.
    if head.method != head.method.upper() or head.method == b"CONNECT":
        return Refusal(405, "this method is not served", (("allow", limits.allow),))
    return None


def _target(head: RawHead, limits: FramingLimits) -> Refusal | None:
    # RFC 9112 section 3.2. Whether an absolute target names this host is for the app to say.
    target = head.target
    if target[:1] == b"/" or (target == b"*" and head.method == b"OPTIONS"):
        return None
    if target[:7].lower() == b"http://" or target[:8].lower() == b"https://":
        return None
    return Refusal(400, "the request target is neither a path nor a URL")


def _host(head: RawHead, limits: FramingLimits) -> Refusal | None:
    hosts = len(head.fields.get(b"host", ()))
    if hosts > 1 or (hosts == 0 and head.version == b"1.1"):  # RFC 9112 section 3.2
        return Refusal(400, "exactly one Host header is required")
    return None


def _transfer_encoding(head: RawHead, limits: FramingLimits) -> Refusal | None:
    if not head.chunked:
        return None
    if b"content-length" in head.fields:  # RFC 9112 section 6.3: ought to be handled as an error
        return Refusal(400, "both Content-Length and Transfer-Encoding are given")
    if head.version == b"1.0":  # RFC 9112 section 6.1: its framing is faulty
        return Refusal(400, "Transfer-Encoding needs HTTP/1.1")
    codings = head.tokens(b"transfer-encoding")
    if codings == [b"chunked"] and len(head.fields[b"transfer-encoding"]) == 1:
        return None
    if codings.count(b"chunked") == 1 and codings[-1] == b"chunked":
        return Refusal(501, "no Transfer-Encoding but chunked is supported")
    return Refusal(400, "chunked must be the last Transfer-Encoding, once")


def _content_length(head: RawHead, limits: FramingLimits) -> Refusal | None:
    if b"content-length" not in head.fields:
        return None
    values = {part.strip(b" \t") for value in head.fields[b"content-length"] for part in value.split(b",")}
    if len(values) != 1 or not (value := values.pop()).isdigit() or len(value) > _LENGTH_DIGITS:
        return Refusal(400, "Content-Length is not one number")
    return None


def _websocket(head: RawHead, limits: FramingLimits) -> Refusal | None:
    if not head.websocket:
        return None
    if head.chunked or head.content_length:
        return Refusal(400, "a WebSocket handshake has no body")
    if head.tokens(b"sec-websocket-version") != [b"13"]:
        return Refusal(
            426, "WebSocket version 13 is served", (("sec-websocket-version", "13"), ("upgrade", "websocket"))
        )
    keys = head.fields.get(b"sec-websocket-key", [])
    if len(keys) != 1 or not _WEBSOCKET_KEY.fullmatch(keys[0]):
        return Refusal(400, "a WebSocket handshake needs one Sec-WebSocket-Key")
    for name in (b"connection", b"upgrade", b"sec-websocket-protocol"):
        lines = head.fields.get(name, [])
        if (name == b"sec-websocket-protocol" and len(lines) > 1) or not all(map(_TOKENS.fullmatch, lines)):
            return Refusal(400, f"the WebSocket handshake's {name.decode()} header is malformed")
    if not all(value.isascii() for name, value in head.headers if name.startswith(b"sec-websocket-")):
        return Refusal(400, "a WebSocket handshake is ASCII")
    return None


CHECKS: Final[tuple[Check, ...]] = (_method, _target, _host, _transfer_encoding, _content_length, _websocket)


def check_head(head: RawHead, limits: FramingLimits) -> Refusal | None:
    """Return why this head is not served, or None."""
    if len(head.headers) > limits.max_headers:
        return Refusal(431, f"more than {limits.max_headers} header fields")
    for check in CHECKS:
        if (refusal := check(head, limits)) is not None:
            return refusal
    # A page can read only a refusal that names its origin (CORS). That of its POST is left to the endpoint.
    of_page = head.method == b"POST" and b"origin" in head.fields
    if limits.max_body is not None and head.content_length > limits.max_body and not of_page:
        return Refusal(413, f"the body is larger than {limits.max_body} bytes")
    return None


def parse_head(raw: bytes, fields_end: int) -> RawHead | Refusal:
    """Read a head whose header lines end at `fields_end`, where only the blank line follows.

    Bare line feeds and folded lines are taken (RFC 9112 sections 2.2 and 5.2), and never handed on as such.
    """
    line, _, _ = raw.partition(b"\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        return Refusal(400, "malformed request line")
    method, target, version = match.groups()
    if version not in (b"1.0", b"1.1"):
        return Refusal(505, "HTTP/1.1 is served here")
    block = raw[len(line) + 1 : fields_end]
    if not _FIELDS.fullmatch(block):
        block = _FOLD.sub(b" ", block)
        if not _FIELDS.fullmatch(block):
            return Refusal(400, "malformed header")
    headers = tuple((name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(block))
    return RawHead(method=method, target=target, version=version, headers=headers)
