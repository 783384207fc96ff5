"""Protocol extensions for both roles, and the registry of those that a server or client uses.

An extension has an identifier (`io.modelcontextprotocol/tasks`) and settings under it, which each side declares in
`capabilities.extensions`. A server's extension may add methods, handle options of `@server.tool(...)`, run a tool
in its own way, and send notifications on listen streams. A client's extension declares the types of results that it can
complete (`results`): if a request is answered with a `resultType` that is not the protocol's own, the function of that
type is called with the method and the result, and returns the result that the caller sees.

    class Shouting(Extension):
        identifier = "org.example/shouting"
        tool_options = frozenset({"shout"})

        def tool(self, entry, option, value):     # @server.tool(shout=True)
            return msgspec.structs.replace(entry, around=self._shout) if value else entry

        async def _shout(self, ctx, proceed):
            result = await proceed(ctx)
            ...

    server.add_extension(Shouting())

For a client (`mcptrio.client` imports no extension; it is given objects): `client_settings()` goes under `identifier`
into the `extensions` of its capabilities, and `results(peer)` into the table of result types, where `peer` lets the
extension send requests to the server and answer the server's input requests (`ClientPeer`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import Struct, field

from mcptrio._actors.router import Route
from mcptrio._struct import Entity
from mcptrio.errors import CapabilityMissing, DeclarationError

if TYPE_CHECKING:
    from mcptrio._actors.runtime import Runtime

Settings = Mapping[str, Any]
Proceed = Callable[[Any], Awaitable[Any]]
Around = Callable[[Any, Proceed], Awaitable[Any]]
"""`async def around(ctx, proceed)`: awaits `proceed(ctx)`, which runs the tool and returns its result in wire form."""
Notify = Callable[[str, dict[str, Any]], None]
"""`notify(method, params)` sends a notification on a listen stream."""
CompleteResult = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""`async def complete(method, result)`: returns the result that the caller of the method sees."""

SHIPPED: Final[Mapping[str, tuple[str, str]]] = {
    "task": ("mcptrio.extensions.tasks", "Tasks"),
    "ui": ("mcptrio.extensions.apps", "Apps"),
}
"""Tool options whose extension is added on first use: option -> where its extension is defined."""


class Heard(Struct, frozen=True, kw_only=True):
    """The part of a listen request that an extension serves."""

    honoured: Settings
    """The part of the filter, for the acknowledgement."""
    begin: Callable[[Notify], Callable[[], None]]
    """Called once the client has the acknowledgement; the returned function is called when the stream ends."""


class ClientPeer(Protocol):
    """The connection of a client, as its extensions see it."""

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the server; raises `MCPError` if it answers with an error."""

    async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `inputRequests` with the callbacks of the client: key -> answer."""


class Extension:
    """The base class of extensions, without any effect. Override what is needed."""

    identifier: ClassVar[str]
    tool_options: ClassVar[frozenset[str]] = frozenset()
    """The options of `@server.tool` that it handles."""

    # -- on a server

    def settings(self) -> Settings:
        """Return the settings that the server declares under the identifier."""
        return {}

    def bind(self, server: Any) -> None:
        """Set up a server that it was added to, for example add resources. If it raises, it is not added."""

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Start serving in a runtime; the returned function is called when the runtime ends."""
        return lambda: None

    def check_absorb(self, other: Extension) -> None:
        """Check whether a server with an extension of the same identifier can be included.

        Raises:
            DeclarationError: the two cannot be combined.
        """

    def absorb(self, other: Extension) -> None:
        """Take over the state of the same extension of a server that is being included."""

    def routes(self) -> Iterable[Route]:
        """Return the methods that it adds."""
        return ()

    def tool(self, entry: Any, option: str, value: Any) -> Any:
        """Return the entry of a tool, changed by an option of this extension.

        Raises:
            DeclarationError: the value is invalid.
        """
        raise DeclarationError(f"{self.identifier} lists the option {option}= without handling it: override `tool`")

    def declared(self, server: Any, entry: Any, option: str, value: Any) -> None:
        """Prepare for a tool with an option of this extension that is about to be added to a server."""

    def removed(self, server: Any, entry: Any, option: str, value: Any) -> None:
        """Handle the removal of a tool with an option of this extension."""

    async def listen(self, ctx: Any, wanted: Settings) -> Heard | None:
        """Return the part of a listen request's filter that it serves, or None."""
        return None

    # -- on a client

    def client_settings(self) -> Settings:
        """Return the settings that the client declares under the identifier."""
        return {}

    def results(self, peer: ClientPeer) -> Mapping[str, CompleteResult]:
        """Return the types of results that it supports, and the function that completes each."""
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
        """Add an extension that `check` accepts."""
        self.check(extension)
        self._by_id[extension.identifier] = extension

    def remove(self, extension: Extension) -> None:
        del self._by_id[extension.identifier]

    def check(self, extension: Extension) -> None:
        """Raise `DeclarationError` if there is one with that identifier, or with one of its tool options."""
        if extension.identifier in self._by_id:
            raise DeclarationError(f"there is an extension {extension.identifier!r} already; a server has one of each")
        for option in extension.tool_options:
            other = self.for_option(option)
            if other is not None:
                raise DeclarationError(f"{option}= is already handled by {other.identifier!r}")

    def for_option(self, option: str) -> Extension | None:
        return next((ext for ext in self._by_id.values() if option in ext.tool_options), None)

    def settings(self) -> dict[str, Settings]:
        return {identifier: extension.settings() for identifier, extension in self._by_id.items()}


def shipped(option: str) -> Extension | None:
    """Return a new extension that handles a tool option, if mcptrio has one."""
    place = SHIPPED.get(option)
    if place is None:
        return None
    extension: Extension = getattr(import_module(place[0]), place[1])()
    return extension


def declared(capabilities: Mapping[str, Any], identifier: str) -> Settings | None:
    """Return the settings with which the other side declared an extension; None if it did not."""
    extensions = capabilities.get("extensions")
    found = extensions.get(identifier) if isinstance(extensions, Mapping) else None
    return found if isinstance(found, Mapping) else None


def require(capabilities: Mapping[str, Any], identifier: str, what: str) -> Settings:
    """Return the settings of an extension that a feature requires.

    Raises:
        CapabilityMissing: it was not declared.
    """
    found = declared(capabilities, identifier)
    if found is None:
        # 2026-07-28 basic/index: the error MUST name what is required, as it would be declared
        required: dict[str, Any] = {"extensions": {identifier: {}}}
        raise CapabilityMissing(f"{what} needs the extension {identifier}, which was not declared", required=required)
    return found
