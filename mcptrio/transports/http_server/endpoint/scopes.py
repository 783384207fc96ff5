"""The scopes that a request needs, and the challenge for a sender that lacks them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import trio

from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Frame, Request

from .admission import retry_after
from .message import Headers, HttpRequest, Plain, id_of, refuse

if TYPE_CHECKING:
    from mcptrio.transports.bearer.authorizer import Authorizer


class Scopes(Entity):
    """The scope checks of requests, made before anything of them starts."""

    needed: Callable[[str, dict[str, Any], bool], Collection[str]]
    """Returns the scopes that a method with its parameters needs; with True, also those it may need later."""
    authorizer: Authorizer | None
    """The authenticator, if it is ours: it builds better challenges."""

    async def check(self, request: HttpRequest, frame: Frame | Batch) -> Plain | None:
        """Return the refusal of a request whose sender lacks scopes, or None."""
        if request.scopes is None:
            return None
        if type(frame) is Request:
            needed = self.needed(frame.method, frame.params, False)
        else:
            needed = await self._of_batch(frame) if type(frame) is tuple else ()
        if not needed or request.scopes.issuperset(needed):
            return None
        request_id = id_of(frame)
        if self.authorizer is not None:
            return self.authorizer.forbidden(needed, request_id)
        text = f"insufficient scope; required: {' '.join(sorted(set(needed)))}"
        return refuse(403, text, headers=self._challenge(needed), request_id=request_id)

    def headers_for(self, status: int, frame: Frame | Batch, answer: bytes) -> Headers:
        """Return the headers that belong to the status that a handler chose."""
        if status == 403:
            # Only the answer to a single request has a status of its own.
            needed = self.needed(frame.method, frame.params, True) if type(frame) is Request else ()
            return self._challenge(needed)
        return ((b"retry-after", b"%d" % retry_after(answer)),) if status in (429, 503) else ()

    async def _of_batch(self, batch: Batch) -> Collection[str]:
        found: set[str] = set()
        for each in batch:
            if type(each) is Request:
                found.update(self.needed(each.method, each.params, False))
                await trio.lowlevel.checkpoint()  # matching a long URI with scoped templates takes time
        return found

    def _challenge(self, scopes: Iterable[str]) -> Headers:
        if self.authorizer is not None:
            return self.authorizer.forbidden_headers(scopes)
        text = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(set(scopes)))}"'
        return ((b"www-authenticate", text.encode("latin-1")),)
