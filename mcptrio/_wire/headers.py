"""HTTP header values of MCP: strict parsing, safe writing.

Everything here takes and returns `str` (header bytes decoded as Latin-1) and raises `ValueError`, nothing else.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TYPE: Final = re.compile(rf"[ \t]*+({_TOKEN})/({_TOKEN})[ \t]*+")
_PARAMETER: Final = re.compile(rf';[ \t]*+(?:({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*+)")[ \t]*+)?+')
_QVALUE: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_COMMA: Final = re.compile(r'((?:[^,"]|"(?:[^"\\]|\\.)*+"?)++)')

_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9A-Za-z_.\-]{1,255}))(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.+)")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_PLAIN: Final = re.compile(r"[ -~]*")
_FIELD_VALUE: Final = re.compile(r"[\t -~]*")
_VISIBLE: Final = re.compile(r"[!-~]+")


# -- media types


def accepts(header: str, media_types: Iterable[str]) -> bool:
    """Return whether an `Accept` header allows each of these media types (lower case, no parameters) as the response.

    The most specific range that fits decides, and `q=0` refuses (RFC 9110 section 12.5.1). An empty header accepts
    everything. Ranges that cannot be read are skipped.
    """
    if not header:
        return True
    ranges = _ranges(header) if len(header) <= 256 else _read_ranges(header)
    for wanted in media_types:
        kind = wanted.partition("/")[0]
        if not ranges.get(wanted, ranges.get(f"{kind}/*", ranges.get("*/*", 0.0))):
            return False
    return True


def _read_ranges(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for element in _COMMA.findall(header):
        try:
            name, parameters = _read_media_type(element)
        except ValueError:
            continue
        weight = parameters.get("q", "1")
        if _QVALUE.fullmatch(weight):
            found[name] = max(found.get(name, 0.0), float(weight))
    return found


_ranges: Final = lru_cache(maxsize=64)(_read_ranges)  # clients repeat their headers; long ones are not kept


def media_type(content_type: str) -> str:
    """Return the media type of a `Content-Type` header, in lower case.

    Raises:
        ValueError: it cannot be read, or it is JSON in another charset than UTF-8.
    """
    if content_type == "application/json":
        return content_type
    name, parameters = _read_media_type(content_type)
    if name == "application/json" and parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise ValueError(f"JSON must be in UTF-8: {content_type!a}")
    return name


def _read_media_type(text: str) -> tuple[str, dict[str, str]]:
    match = _TYPE.match(text)
    if match is None:
        raise ValueError(f"not a media type: {text!a}")
    parameters: dict[str, str] = {}
    position = match.end()
    while position < len(text):
        parameter = _PARAMETER.match(text, position)
        if parameter is None:
            raise ValueError(f"not a media type: {text!a}")
        position = parameter.end()
        name, token, quoted = parameter.groups()
        if name is None:  # RFC 9110 section 5.6.6: an empty parameter is ignored
            continue
        if name.lower() in parameters:
            raise ValueError(f"a parameter occurs twice: {text!a}")
        parameters[name.lower()] = token if token is not None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    return f"{match[1]}/{match[2]}".lower(), parameters


# -- host and origin


def parse_host(value: str) -> tuple[str, int | None]:
    """Split a `Host` header into a lower-case name or address (IPv6 without its brackets) and a port.

    Raises:
        ValueError: it is not exactly a host with an optional decimal port.
    """
    match = _HOST.fullmatch(value)
    if match is None:
        raise ValueError(f"not a host: {value!a}")
    address, name, digits = match.groups()
    port = None if digits is None else int(digits)
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"not a port: {value!a}")
    if address is None:
        return name.lower(), port
    from ipaddress import IPv6Address  # rarely needed, and slow to import

    return str(IPv6Address(address)), port


class Origin(NamedTuple):
    """The origin of a web page, with the default port of its scheme filled in."""

    scheme: str
    host: str
    port: int | None


def parse_origin(value: str) -> Origin:
    """Read an `Origin` header.

    Raises:
        ValueError: it is `null`, a list, or anything else that names no single origin.
    """
    match = _ORIGIN.fullmatch(value)
    if match is None:
        raise ValueError(f"not an origin: {value!a}")
    scheme = match[1].lower()
    host, port = parse_host(match[2])
    return Origin(scheme, host, _DEFAULT_PORTS.get(scheme) if port is None else port)


# -- header values that repeat the body


def encode_header_value(value: str) -> str:
    """Encode a text as the value of `Mcp-Name` or `Mcp-Param-*`, in Base64 if it is not safe as it is.

    Raises:
        ValueError: it holds a lone surrogate.
    """
    # 2026-07-28 basic/transports/streamable-http, Value Encoding
    looks_encoded = value.startswith(_PREFIX) and value.endswith(_SUFFIX)
    if _PLAIN.fullmatch(value) and value.strip(" ") == value and not looks_encoded:
        return value
    return f"{_PREFIX}{b64encode(value.encode()).decode()}{_SUFFIX}"


def decode_header_value(value: str) -> str:
    """Read the value of `Mcp-Name` or `Mcp-Param-*`.

    Raises:
        ValueError: a character that no header may have, or Base64 that is not canonical or not of UTF-8.
    """
    value = value.strip(" \t")
    if not _FIELD_VALUE.fullmatch(value):
        raise ValueError(f"not a header value: {value!a}")
    if len(value) < len(_PREFIX) + len(_SUFFIX) or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    encoded = value[len(_PREFIX) : -len(_SUFFIX)]
    decoded = a2b_base64(encoded, strict_mode=True)
    if b64encode(decoded).decode() != encoded:  # one text, one encoding: two readers cannot disagree
        raise ValueError(f"not canonical Base64: {value!a}")
    return decoded.decode()


def is_visible_ascii(value: str) -> bool:
    """Return whether a session id has only the characters that the specification allows, 0x21 to 0x7E."""
    return _VISIBLE.fullmatch(value) is not None
