"""The steps of a flow: I/O operations as values.

A flow is a generator. It yields a step, the driver performs the step and sends the result back in, and the generator
returns the result of the flow. If a step fails, the driver throws the error into the flow.
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
    """Make an HTTP request; the result is a `Fetched`."""

    what: str
    """The subject of error texts, such as `the token request`."""
    method: Literal["GET", "POST"] = "GET"
    url: str
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    json: Mapping[str, Any] | None = field(default=None, repr=False)


@frozen(kw_only=True)
class Fetched:
    """The response to a `Fetch`; its body has at most 256 KiB."""

    status: int
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)

    def document(self) -> dict[str, Any] | None:
        """Parse the body; None if it is not a JSON object."""
        if "json" not in self.headers.get("content-type", "").lower():
            return None
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return value if isinstance(value, dict) else None


@frozen(kw_only=True)
class Listen:
    """Listen for the redirect; the result is the redirect URI, `preferred` if its port is free."""

    preferred: str | None = None


@frozen(kw_only=True)
class Visit:
    """Show a page to the user; the result is the decoded query of the redirect."""

    url: str = field(repr=False)
    state: str = field(repr=False)


@frozen(kw_only=True)
class Load:
    """Load a record from the storage; the result is the record or None."""

    key: str


@frozen(kw_only=True)
class Save:
    """Save a record, or delete it with None; the result is None."""

    key: str
    record: Mapping[str, Any] | None = field(repr=False)


@frozen(kw_only=True)
class Lock:
    """Lock a record, so that no other flow of this storage changes it until `Unlock` or the end of this flow.

    Fails with `FetchFailed` if another flow does not release it. The result is None.
    """

    key: str


@frozen(kw_only=True)
class Unlock:
    """Release a record; the result is None."""

    key: str


@frozen(kw_only=True)
class Supply:
    """Call a function of the user that may be async, such as a source of ID tokens; the result is a string."""

    supplier: Callable[..., Any]
    arguments: tuple[str, ...] = field(default=(), repr=False)


Step: TypeAlias = Fetch | Listen | Visit | Load | Save | Lock | Unlock | Supply
Flow: TypeAlias = Generator[Step, Any, T]


@frozen(kw_only=True)
class FlowInputs:
    """The clock and the random secrets of a flow, injected so that flows stay pure."""

    now: Callable[[], float]
    secret: Callable[[], str]
    """Returns an unguessable string of 43 or more URL-safe characters."""


def fetch(step: Fetch) -> Flow[Fetched]:
    """Make a request."""
    answer = yield step
    assert isinstance(answer, Fetched)
    return answer


def load(key: str) -> Flow[dict[str, Any] | None]:
    """Load a record from the storage; None if there is none or it is unreadable."""
    answer = yield Load(key=key)
    return answer if isinstance(answer, dict) else None


def supply(source: str | Callable[..., Any], *arguments: str) -> Flow[str]:
    """Return a string that the user configured, or call the function that supplies it."""
    if isinstance(source, str):
        return source
    answer = yield Supply(supplier=source, arguments=arguments)
    if not isinstance(answer, str) or not answer:
        raise FetchFailed(f"{getattr(source, '__name__', 'the supplier')} returned no string")
    return answer
