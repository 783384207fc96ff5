"""What an extension of the protocol is, for both roles, and the registry of those that a server or client uses.

An extension has an identifier (`io.modelcontextprotocol/tasks`) and settings under it, which each side declares in
`capabilities.extensions`. A server's extension may add methods, understand options of `@server.tool(...)`, run a tool
in a way of its own, and send notifications on listen streams. A client's extension says which types of results it can
complete (`results`): where a request is answered with a `resultType` that is not the protocol's own, the function of
that type is called with the method and the result, and gives the result that the caller sees.

    class Shouting(Extension):
        identifier = "org.example/shouting"
        tool_options = frozenset({"shout"})

        def tool(self, entry, option, value):     # @server.tool(shout=True)
            return evolve(entry, around=self._shout) if value else entry

        async def _shout(self, ctx, proceed):
            result = await proceed(ctx)
            ...

    server.add_extension(Shouting())

What a client needs (`mcptrio.client` imports no extension; it is given objects): `client_settings()` goes under
`identifier` into the `extensions` of its capabilities, and `results(peer)` into the table of result types, where `peer`
lets the extension ask the server and answer the server's questions (`ClientPeer`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol

from msgspec import Struct, field

from mcptrio._actors.router import Route
from mcptrio._struct import Entity
from mcptrio.errors import CapabilityMissing, DeclarationError

Settings = Mapping[str, Any]
Proceed = Callable[[Any], Awaitable[Any]]
Around = Callable[[Any, Proceed], Awaitable[Any]]
"""`async def around(ctx, proceed)`: awaits `proceed(ctx)`, which runs the tool and gives its result on the wire."""
Tell = Callable[[str, dict[str, Any]], None]
"""`tell(method, params)` puts a notification on a listen stream."""
CompleteResult = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""`async def complete(method, result)`: the result that the caller of the method sees."""

SHIPPED: Final[Mapping[str, tuple[str, str]]] = {
    "task": ("mcptrio.extensions.tasks", "Tasks"),
    "ui": ("mcptrio.extensions.apps", "Apps"),
}
"""Tool options of extensions that are added by being used: the option -> where its extension is."""


class Heard(Struct, frozen=True, kw_only=True):
    """What an extension takes of a listen request."""

    honoured: Settings
    """The part of the filter that it serves, for the acknowledgement."""
    begin: Callable[[Tell], Callable[[], None]]
    """Called once the client has the acknowledgement; what it returns is called when the stream ends."""


class ClientPeer(Protocol):
    """What a client's extension may do with the connection."""

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the server; raises `McpError` if it answers with an error."""

    async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `inputRequests` with the callbacks of the client: key -> answer."""


class Extension:
    """The base of extensions: it adds nothing. Override what is needed."""

    identifier: ClassVar[str]
    tool_options: ClassVar[frozenset[str]] = frozenset()
    """The options of `@server.tool` that it understands."""

    # -- as a server's

    def settings(self) -> Settings:
        """What the server declares under the identifier."""
        return {}

    def bind(self, server: Any) -> None:
        """It was added to a server, which may be changed: resources added, for example."""

    def check_absorb(self, other: Extension) -> None:
        """A server with an extension of the same identifier is about to be included.

        Raises:
            DeclarationError: the two cannot be one.
        """

    def absorb(self, other: Extension) -> None:
        """That server is being included: take over what its extension holds."""

    def routes(self) -> Iterable[Route]:
        """The methods that it adds."""
        return ()

    def tool(self, entry: Any, option: str, value: Any) -> Any:
        """The entry of a tool, changed as an option of this extension says.

        Raises:
            DeclarationError: the value makes no sense.
        """
        raise NotImplementedError(f"{self.identifier} does not understand {option}=")

    def declared(self, server: Any, entry: Any, option: str, value: Any) -> None:
        """A tool with an option of this extension is about to be added to a server."""

    async def listen(self, ctx: Any, wanted: Settings) -> Heard | None:
        """What it takes of the filter of a listen request; None for nothing."""
        return None

    # -- as a client's

    def client_settings(self) -> Settings:
        """What the client declares under the identifier."""
        return {}

    def results(self, peer: ClientPeer) -> Mapping[str, CompleteResult]:
        """The types of results that it knows, and how each is completed."""
        return {}


class Extensions(Entity):
    """The extensions of one server or client."""

    _by_id: dict[str, Extension] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Extension]:
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, identifier: str) -> Extension | None:
        return self._by_id.get(identifier)

    def add(self, extension: Extension) -> None:
        """Raises `DeclarationError` if there is one with that identifier, or with one of its tool options."""
        if extension.identifier in self._by_id:
            raise DeclarationError(f"there is an extension {extension.identifier!r} already; a server has one of each")
        for option in extension.tool_options:
            other = self.for_option(option)
            if other is not None:
                raise DeclarationError(f"two extensions understand {option}=: {other.identifier!r} does already")
        self._by_id[extension.identifier] = extension

    def for_option(self, option: str) -> Extension | None:
        return next((ext for ext in self._by_id.values() if option in ext.tool_options), None)

    def settings(self) -> dict[str, Settings]:
        return {identifier: extension.settings() for identifier, extension in self._by_id.items()}


def shipped(option: str) -> Extension | None:
    """A new extension that understands a tool option, if mcptrio has one."""
    place = SHIPPED.get(option)
    if place is None:
        return None
    extension: Extension = getattr(import_module(place[0]), place[1])()
    return extension


def declared(capabilities: Mapping[str, Any], identifier: str) -> Settings | None:
    """The settings under which the other side declared an extension; None if it did not."""
    extensions = capabilities.get("extensions")
    found = extensions.get(identifier) if isinstance(extensions, Mapping) else None
    return found if isinstance(found, Mapping) else None


def require(capabilities: Mapping[str, Any], identifier: str, what: str) -> Settings:
    """The same, where nothing goes without it.

    Raises:
        CapabilityMissing: it was not declared.
    """
    found = declared(capabilities, identifier)
    if found is None:
        # 2026-07-28 basic/index: the error MUST name what is required, as it would be declared
        required: dict[str, Any] = {"extensions": {identifier: {}}}
        raise CapabilityMissing(f"{what} needs the extension {identifier}, which was not declared", required=required)
    return found
