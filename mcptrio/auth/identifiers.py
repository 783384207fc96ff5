"""Comparison of issuer and resource identifiers, for clients and servers."""

from __future__ import annotations


def same_identifier(one: object, other: str) -> bool:
    """Return whether two identifiers are equal.

    An empty path and `/` are the same URL (RFC 3986 section 6.2.3), and servers mix the two. Everything else is
    compared exactly, as RFC 8414 section 3.3 requires.
    """
    return isinstance(one, str) and (one == other or _without_root(one) == _without_root(other))


def _without_root(url: str) -> str:
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    is_root = slash and not path and not {"?", "#"} & set(host)
    return f"{scheme}://{host}" if is_root else url
