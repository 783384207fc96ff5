"""Parsing of the `WWW-Authenticate` header (RFC 9110 section 11.6.1, RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PARAMETER: Final = re.compile(rf'({_TOKEN})[ \t]*+=[ \t]*+(?:({_TOKEN})|"((?:[^"\\]|\\.)*+)")(?=[ \t]*+(?:,|$))')
_SCHEME: Final = re.compile(rf"({_TOKEN})(?=[ \t,]|$)")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/\-]++=*+(?=[ \t]*+(?:,|$))")
_GAP: Final = re.compile(r"[ \t,]*+")
_ESCAPE: Final = re.compile(r"\\(.)")
_LONGEST: Final = 16 * 1024
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")  # RFC 6749 section 3.3


@frozen(kw_only=True)
class Challenge:
    """One authentication scheme that a server offers. Names are in lower case."""

    scheme: str
    parameters: Mapping[str, str] = field(factory=dict)

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")

    @property
    def resource_metadata(self) -> str | None:
        return self.parameters.get("resource_metadata")

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that it requires; None if it names none."""
        return read_scopes(self.parameters.get("scope"))


def read_challenges(header: str) -> tuple[Challenge, ...]:
    """Parse the challenges of a header, up to the first syntax error."""
    header = header[:_LONGEST]
    found: list[tuple[str, dict[str, str]]] = []
    place = 0
    while True:
        gap = _GAP.match(header, place)
        place = gap.end() if gap else place
        if (parameter := _PARAMETER.match(header, place)) and found:
            name, plain, quoted = parameter.groups()
            value = plain if plain is not None else _ESCAPE.sub(r"\1", quoted)
            found[-1][1].setdefault(name.lower(), value)  # repeated: the first counts
            place = parameter.end()
        elif scheme := _SCHEME.match(header, place):
            found.append((scheme[1].lower(), {}))
            gap = _GAP.match(header, scheme.end())
            place = gap.end() if gap else scheme.end()
            if not _PARAMETER.match(header, place) and "," not in header[scheme.end() : place]:
                token68 = _TOKEN68.match(header, place)  # as in `Negotiate dG9rZW4=`: skipped
                place = token68.end() if token68 else place
        else:
            return tuple(Challenge(scheme=name, parameters=parameters) for name, parameters in found)


def choose(challenges: tuple[Challenge, ...], *, dpop: bool | None) -> Challenge | None:
    """Select the challenge to respond to.

    `dpop` is the user's setting: True prefers DPoP, False excludes it, None takes the first that the server offers.
    """
    spoken = {True: ("dpop", "bearer"), False: ("bearer",), None: ()}[dpop]
    for scheme in spoken:
        for one in challenges:
            if one.scheme == scheme:
                return one
    return next((one for one in challenges if dpop is None and one.scheme in ("bearer", "dpop")), None)


def read_scopes(text: object) -> tuple[str, ...] | None:
    """Split a space-separated string into scopes, without duplicates; None if there are none."""
    if not isinstance(text, str):
        return None
    return tuple(dict.fromkeys(one for one in text.split() if _SCOPE.fullmatch(one))) or None
