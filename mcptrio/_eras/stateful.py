"""Parts shared by the stateful dates: `initialize`, requests in both directions, subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcptrio._peer.era import Method, Role

TO_SERVER: Final = Role.SERVER
TO_CLIENT: Final = Role.CLIENT


def missing(declared: Mapping[str, Any], needs: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the capability at the path `needs` as a nested object, or None if `declared` holds it."""
    here: Any = declared
    for name in needs:
        found = here.get(name) if type(here) is dict or isinstance(here, Mapping) else None  # the first test is faster
        if found is None or found is False:
            wanted: dict[str, Any] = {}
            for key in reversed(needs):
                wanted = {key: wanted}
            return wanted
        here = found
    return None


def by_method(
    requests: Mapping[str, Method], declared: Mapping[str, Any], method: str, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the capability of the method that `declared` lacks, or None. The parameters do not matter."""
    spec = requests.get(method)
    return None if spec is None or not spec.needs else missing(declared, spec.needs)
