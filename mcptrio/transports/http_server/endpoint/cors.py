"""CORS: the headers that let web pages of allowed origins read responses, and the answer to a browser's preflight.

Only origins that `HttpConfig.allowed_origins` names get these headers. A page of the loopback interface, or of the
server's own address, may pass the check of Origin without being named; it gets none of them.

Credentials are off: a browser sends neither cookies nor client certificates of its own accord. A page that signs in
sends its token in `Authorization`, as every client does.
"""

from __future__ import annotations

import re
from typing import Final

from .message import Headers, HttpRequest, Plain

VARY: Final[Headers] = ((b"vary", b"Origin"),)
"""For every response that depends on Origin, so that no cache gives the one of a page to another page."""

_EXPOSED: Final = (
    b"access-control-expose-headers",
    b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce, Retry-After",
)
_PREFLIGHT_VARY: Final = (
    b"vary",
    b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network",
)
_MAX_AGE: Final = (b"access-control-max-age", b"7200")  # browsers keep it no longer; each request is checked anyway
_HEADERS: Final = frozenset(
    b"accept authorization baggage content-type dpop last-event-id mcp-method mcp-name mcp-protocol-version "
    b"mcp-session-id traceparent tracestate".split()
)
_PARAMETER: Final = re.compile(rb"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]+")  # 2026-07-28: arguments as headers


def page_headers(origin: bytes) -> Headers:
    """Return the headers that let a page read a response; `origin` is its origin, or `*` for all pages."""
    return (*VARY, (b"access-control-allow-origin", origin), _EXPOSED)


def answer_preflight(head: HttpRequest, methods: bytes, further: frozenset[bytes]) -> Plain | None:
    """Answer a browser that asks what a page may send; None if it does not ask, or the page is not allowed.

    Allow the headers of MCP, and the `further` ones. A preflight has no credentials, so it comes before authentication.
    """
    fields = head.fields
    if head.method != "OPTIONS" or b"access-control-request-method" not in fields or len(head.cors) <= len(VARY):
        return None
    wanted = [name.strip().lower() for name in fields.get(b"access-control-request-headers", b"").split(b",")]
    allowed = [name for name in wanted if name in _HEADERS or name in further or _PARAMETER.fullmatch(name)]
    origin = next(header for header in head.cors if header[0] == b"access-control-allow-origin")
    headers: Headers = (_PREFLIGHT_VARY, origin, (b"access-control-allow-methods", methods), _MAX_AGE)
    if allowed:
        headers += ((b"access-control-allow-headers", b", ".join(allowed)),)
    # A public page that wants to reach a private address. An origin that was named may; `*` names none.
    if fields.get(b"access-control-request-private-network") == b"true" and origin[1] != b"*":
        headers += ((b"access-control-allow-private-network", b"true"),)
    head.cors = ()  # they are all here
    return Plain(200, headers)  # not 204, which must have no length
