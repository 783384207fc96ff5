"""SSRF protection: which URLs from a server may be fetched, and at which addresses.

A URL is checked twice, because a name can resolve to any address: `check_url` checks its text, `check_addresses` every
address that its host resolved to. The fetcher then connects to a checked address, never to the name, so that a second
resolution cannot change the address (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from mcptrio.errors import MCPTrioError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PRINTABLE: Final = re.compile(r"[!-\[\]^-~]+")  # visible ASCII without backslash, which browsers treat as a slash
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

# The registries of special-purpose addresses (RFC 6890 and its updates): no public server has an address in them.
_CLOSED_4: Final = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_OPEN_6: Final = ipaddress.IPv6Network("2000::/3")
_CLOSED_6: Final = tuple(
    ipaddress.IPv6Network(text) for text in ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "3ffe::/16"]
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class UrlRefused(MCPTrioError):
    """A URL from a server that must not be requested."""


@frozen(kw_only=True)
class FetchPolicy:
    """The exceptions that a user allows.

    `loopback` is set when the user connected to a server on this machine: only then may it name loopback URLs.
    `origins` are configured by the user, not by a server; their addresses are not checked.
    `hosts` may resolve to private addresses and may be contacted without TLS.
    """

    loopback: bool = False
    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


@frozen(kw_only=True)
class FetchTarget:
    """The destination of a checked URL, and which addresses it may resolve to."""

    host: str
    port: int
    https: bool
    free: bool
    """Any address is allowed: the user configured this host."""
    loopback: bool
    """Only loopback addresses are allowed."""


def check_url(url: str, policy: FetchPolicy) -> FetchTarget:
    """Check the text of a URL.

    Raises:
        UrlRefused: it must not be fetched. The error text contains no more of the URL than its host.
    """
    scheme, host, port = split_origin(url)
    if host in policy.hosts:
        return FetchTarget(host=host, port=port, https=scheme == "https", free=True, loopback=False)
    loopback, named = host in _LOOPBACK_NAMES, origin_of(url) in policy.origins
    if loopback and not (policy.loopback or named):
        raise UrlRefused(f"a server elsewhere names an address of this machine, {host}")
    if scheme != "https" and not loopback:
        raise UrlRefused(f"{scheme}://{host} is not https")
    return FetchTarget(host=host, port=port, https=scheme == "https", free=named and not loopback, loopback=loopback)


def check_addresses(found: Iterable[str], target: FetchTarget) -> tuple[str, ...]:
    """Check every address that a host resolved to, and return them without duplicates.

    Raises:
        UrlRefused: an address is private, loopback or otherwise not public. A single one is enough, because a name
            that mixes public and private addresses is suspicious.
    """
    addresses = tuple(dict.fromkeys(found))
    if not addresses:
        raise UrlRefused(f"{target.host} has no address")
    for text in addresses:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise UrlRefused(f"{target.host} resolves to an invalid address") from None
        if target.free:
            continue
        if target.loopback:
            if not is_loopback(address):
                raise UrlRefused(f"{target.host} resolves to an address of another machine")
        elif not is_public(address):
            raise UrlRefused(f"{target.host} resolves to an address that is not public")
    return addresses


def is_public(address: Address) -> bool:
    """Return whether an address is public; embedded IPv4 addresses are checked as such."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:  # addresses of IPv4 hosts in networks without IPv4 (RFC 6147)
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


def is_loopback(address: Address) -> bool:
    """Return whether an address is a loopback address."""
    if isinstance(address, ipaddress.IPv6Address):
        return address == ipaddress.IPv6Address("::1")
    return address in ipaddress.IPv4Network("127.0.0.0/8")


def is_loopback_url(url: str) -> bool:
    """Return whether the host of a URL is localhost, 127.0.0.1 or [::1]."""
    try:
        return split_origin(url)[1] in _LOOPBACK_NAMES
    except UrlRefused:
        return False


def split_origin(url: str) -> tuple[str, str, int]:
    """Split an http or https URL into scheme, host (lower case, no brackets) and port.

    Raises:
        UrlRefused: it is not such a URL, or its host has a form that parsers disagree about.
    """
    if not _PRINTABLE.fullmatch(url):
        raise UrlRefused("a URL with characters that are not allowed in one")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UrlRefused("a URL that cannot be read") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.netloc:
        raise UrlRefused(f"a URL that is neither https nor http but {parts.scheme[:20] or 'relative'}")
    if "@" in parts.netloc:
        raise UrlRefused("a URL with a name or a password before its host")
    return (
        parts.scheme,
        _host(parts.hostname or "", bracketed="[" in parts.netloc),
        port or _DEFAULT_PORTS[parts.scheme],
    )


def origin_of(url: str) -> str:
    """Return the origin of a URL as `https://host:port`, always with the port.

    Raises:
        UrlRefused: see `split_origin`.
    """
    scheme, host, port = split_origin(url)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _host(host: str, *, bracketed: bool) -> str:
    if bracketed:
        try:
            return str(ipaddress.IPv6Address(host))  # no zone: it would select a local network interface
        except ValueError:
            raise UrlRefused("a host in brackets that is no IPv6 address") from None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        # Ends in a number: parsers read 0x7f.1, 2130706433 and 127.1 as addresses, by differing rules.
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise UrlRefused("an IPv4 address that is not written as four decimal numbers") from None
    if not _NAME.fullmatch(host) or len(host) > 253:
        raise UrlRefused("a host that is not written as a plain name")  # also: "localhost." with a trailing dot, %6c, é
    return host
