"""Choose the era of a frame or an HTTP request among those that are served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from mcptrio._eras import stateless, v2024_11_05, v2025_03_26, v2025_06_18, v2025_11_25, v2026_07_28
from mcptrio._peer.era import Era
from mcptrio._settings import check_value
from mcptrio._wire.jsonrpc import Request
from mcptrio.errors import UNSUPPORTED_PROTOCOL_VERSION, DeclarationError, RemoteProtocolError

_IN_ORDER: Final = (v2024_11_05.ERA, v2025_03_26.ERA, v2025_06_18.ERA, v2025_11_25.ERA, v2026_07_28.ERA)
_ALL_NAMES: Final = frozenset[str]().union(*(set(era.requests) | era.notifications for era in _IN_ORDER))

ERAS: Final[dict[str, Era]] = {
    era.date: replace(era, lacks=_ALL_NAMES - set(era.requests) - era.notifications) for era in _IN_ORDER
}
"""Every supported protocol date, oldest first."""


class Served:
    """The protocol dates that one server or client supports."""

    __slots__ = ("eras", "newest_stateful", "newest_stateless")

    def __init__(self, eras: dict[str, Era] | None = None) -> None:
        self.eras = dict(ERAS) if eras is None else eras
        newest_first = tuple(reversed(self.eras.values()))
        self.newest_stateful = next((era for era in newest_first if era.stateful), None)
        self.newest_stateless = next((era for era in newest_first if not era.stateful), None)

    @classmethod
    def only(cls, dates: Iterable[str] | None) -> Served:
        """Restrict to `dates`; None means all of them."""
        if dates is None:
            return cls()
        check_value("protocols", dates, Iterable[str])
        wanted = (dates,) if isinstance(dates, str) else tuple(dates)
        unknown = [date for date in wanted if date not in ERAS]
        if unknown or not wanted:
            given = ", ".join(map(str, unknown)) or "(none given)"
            raise DeclarationError(f"unknown protocol version {given}; known are {', '.join(ERAS)}")
        return cls({date: era for date, era in ERAS.items() if date in wanted})

    @property
    def dates(self) -> tuple[str, ...]:
        return tuple(self.eras)

    def declared(self, frame: Request, *, required: bool = False) -> tuple[Era, dict[str, Any]] | None:
        """Return the era that a request declares for itself and the client's capabilities; None if it declares nothing.

        Raises:
            RemoteProtocolError: the declaration is incomplete (or `required` and missing), or the date is not served.
        """
        params = frame.params
        declares = "_meta" in params and stateless.is_stateless(params)
        if not declares:
            if self.newest_stateful is None and frame.method == "initialize":
                # basic/versioning: clients of stateful dates have no other way to find out
                raise self.unsupported(params.get("protocolVersion"), frame.id)
            stateful = frame.method not in stateless.ONLY_STATELESS or self.newest_stateless is None
            if not required and stateful and self.newest_stateful is not None:
                return None
        capabilities = stateless.read_capabilities(params, frame.id)
        date = stateless.declared_date(params)
        era = self.eras.get(date or "")
        if era is None or era.stateful:
            raise self.unsupported(date, frame.id)
        return era, capabilities

    def unsupported(self, date: object, request_id: int | str | None) -> RemoteProtocolError:
        # basic/versioning: the error MUST list the versions that are supported
        return RemoteProtocolError(
            f"unsupported protocol version; supported are {', '.join(reversed(self.dates))}",
            code=UNSUPPORTED_PROTOCOL_VERSION,
            request_id=request_id,
            data={"supported": list(reversed(self.dates)), "requested": date},
        )

    def negotiate(self, requested: object) -> Era:
        # basic/lifecycle: the requested version if it is supported, else another one that is, the latest if possible
        era = self.eras.get(requested) if isinstance(requested, str) else None
        if era is not None and era.stateful:
            return era
        return self.newest_stateful or next(reversed(self.eras.values()))
