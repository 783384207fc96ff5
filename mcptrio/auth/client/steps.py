"""What a flow may ask of the world, and what it is told.

A flow is a generator. It yields a step, the driver performs it and sends the answer back in, and what the generator
returns is what the flow was for. A step that fails is thrown into the flow at the place where it asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from attrs import field, frozen

from mcptrio.auth.client.errors import FetchFailed

T = TypeVar("T")


@frozen(kw_only=True)
class Fetch:
    """Make an HTTP request; the answer is a `Fetched`."""

    what: str
    """For people: `the token request`."""
    method: Literal["GET", "POST"] = "GET"
    url: str
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    json: Mapping[str, Any] | None = field(default=None, repr=False)


@frozen(kw_only=True)
class Fetched:
    """What a request was answered with; the body has at most 256 KiB."""

    status: int
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)

    def document(self) -> dict[str, Any] | None:
        """The JSON object in the body, if that is what it is."""
        if "json" not in self.headers.get("content-type", "").lower():
            return None
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return value if isinstance(value, dict) else None


@frozen(kw_only=True)
class Listen:
    """Be ready for the redirect; the answer is the redirect URI, `preferred` if that can be had again."""

    preferred: str | None = None


@frozen(kw_only=True)
class Visit:
    """Show a page to the person; the answer is the query of the redirect that follows, decoded."""

    url: str = field(repr=False)
    state: str = field(repr=False)


@frozen(kw_only=True)
class Load:
    """Look into the storage; the answer is what was saved under the key, or None."""

    key: str


@frozen(kw_only=True)
class Save:
    """Keep a record, or with None forget it; the answer is None."""

    key: str
    record: Mapping[str, Any] | None = field(repr=False)


@frozen(kw_only=True)
class Ask:
    """Call something of the user's that may wait, such as where an ID token comes from; the answer is a string."""

    supplier: Callable[..., Any]
    arguments: tuple[str, ...] = field(default=(), repr=False)


Step: TypeAlias = Fetch | Listen | Visit | Load | Save | Ask
Flow: TypeAlias = Generator[Step, Any, T]


@frozen(kw_only=True)
class World:
    """Time and chance, which come from outside so that tests decide them."""

    now: Callable[[], float]
    secret: Callable[[], str]
    """A new string of 43 or more URL-safe characters that nobody can guess."""


def fetch(step: Fetch) -> Flow[Fetched]:
    """Make a request."""
    answer = yield step
    assert isinstance(answer, Fetched)
    return answer


def load(key: str) -> Flow[dict[str, Any] | None]:
    """Look into the storage; what cannot be read there counts as absent."""
    answer = yield Load(key=key)
    return answer if isinstance(answer, dict) else None


def save(key: str, record: Mapping[str, Any] | None) -> Flow[None]:
    """Keep a record in the storage."""
    yield Save(key=key, record=record)


def supply(source: str | Callable[..., Any], *arguments: str) -> Flow[str]:
    """A string that the user gave, or that something of the user's makes."""
    if isinstance(source, str):
        return source
    answer = yield Ask(supplier=source, arguments=arguments)
    if not isinstance(answer, str) or not answer:
        raise FetchFailed(f"{getattr(source, '__name__', 'the supplier')} returned no string")
    return answer
