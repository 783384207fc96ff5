"""Continue stored sessions: find the session of a request that is not in memory, and make its object again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from attrs import define

from mcptrio._actors.record import SessionRecord, read_record, restore
from mcptrio._actors.relay import SilentLink
from mcptrio._actors.session import Session
from mcptrio._actors.session_ids import is_session_id
from mcptrio._peer.era import Era
from mcptrio._peer.messages import Cause
from mcptrio.errors import MCPTrioError, Overloaded, SessionRefused
from mcptrio.stores.base import Claimed, HomeAt, StreamKey

from .calls import died, read_call
from .links import HttpLink
from .message import HttpRequest, Plain, overloaded, refuse_overloaded, unknown_session
from .parts import EndpointParts
from .rerun import run_again

NAMES_PER_EPOCH = 10**9
"""Streams of a session are numbered from its epoch times this, so that no two homes use one name."""


class NotHere(MCPTrioError):
    """The session of a request is not at home in this worker, or no longer: the request is routed again.

    The worker that has the client does that. Nothing was done with the request.
    """


@define(eq=False, repr=False)
class Activation:
    """The loading of stored sessions when a request needs them.   Borrows: the durable sessions of the runtime."""

    parts: EndpointParts
    dates: Mapping[str, Era]
    session_over: Callable[[HttpLink], None]

    def may_exist(self, session_id: str, head: HttpRequest) -> bool:
        """Return whether a session that is not in memory may be stored, and belongs to the sender of a request.

        Another client changes nothing then: it neither claims the session nor makes requests of its owner wait.
        """
        store = self.parts.store
        return self.parts.runtime.homes is not None and is_session_id(session_id, store.secret, head.identity)

    async def locate(
        self, session_id: str, head: HttpRequest | None = None, denied: HomeAt | None = None
    ) -> Session | HomeAt | None:
        """Return a session, which is made again if no other process is its home, or its home; None if it is gone.

        `head` is the request that names it; without one, the home of the session died and a client follows it here.
        `denied` is a home that has answered that the session is not there.

        Raises:
            Overloaded: there is no room, the process drains, or the store cannot be asked.
        """
        homes = self.parts.runtime.homes
        if homes is None:
            return None
        owner = "" if head is None else head.owner
        return await homes.activate(session_id, partial(self._revive, head, session_id), owner, denied)

    async def find(self, head: HttpRequest, request_id: int | str | None = None) -> HttpLink | Plain:
        """Return the link of the stored session that a request names, or the response that refuses the request.

        Raises:
            NotHere: the session was in this worker when the request was routed, and has left.
        """
        homes, session_id = self.parts.runtime.homes, head.fields[b"mcp-session-id"].decode("latin-1")
        if homes is None or not self.may_exist(session_id, head):
            return unknown_session(request_id)
        try:
            if head.at_home:
                await homes.settled(session_id)
                if self.parts.runtime.supervisor.find(session_id) is None:
                    raise NotHere
            found = await homes.activate(session_id, partial(self._revive, head, session_id), head.owner)
        except Overloaded as error:
            return refuse_overloaded(error, request_id, close=self.parts.draining)
        if isinstance(found, HomeAt):  # another worker has claimed it since this request was routed
            return overloaded("the session moves to another worker", 1, request_id=request_id, limit="session")
        # Do not reveal that the session of another client exists. One that was deleted is in memory until it has ended.
        link = None if found is None else found.link
        if type(link) is not HttpLink or link.closed or link.identity != head.identity:
            return unknown_session(request_id)
        return link

    async def _revive(self, head: HttpRequest | None, session_id: str, claimed: Claimed) -> Session | None:
        """Make the session of a record; None if it cannot be read or belongs to another client."""
        record = read_record(claimed.record)
        era = None if record is None else self.dates.get(record.revision)
        if head is None and record is not None:
            head = HttpRequest(method="GET", path=self.parts.config.path, headers=())
            head.identity = record.identity
        # Do not reveal that the session of another client exists.
        if record is None or era is None or head is None or record.identity != head.identity:
            return None
        self.parts.admission.check_sessions(record.identity)  # passivated sessions must not pass the limit
        http = self._make(head, session_id, claimed, record, era)
        session = http.session
        try:
            await http.reopen()
            await self.parts.runtime.app.restore(session, record, SilentLink(head))
            # Without a request of its client there is no principal that a call could run for.
            await self._end_calls(http, head, claimed, may_rerun=head.principal is not None or not record.identity)
        except BaseException as error:
            session.close_nowait(Cause.PASSIVATED)
            if isinstance(error, SessionRefused):
                return None
            raise
        return session

    def _make(self, head: HttpRequest, session_id: str, claimed: Claimed, record: SessionRecord, era: Era) -> HttpLink:
        http = HttpLink(
            parts=self.parts,
            identity=record.identity,
            on_end=self.session_over,
            confirmed=record.confirmed,
            last_name=claimed.epoch * NAMES_PER_EPOCH,
        )
        session = http.session = Session(
            id=session_id,
            service=self.parts.runtime.app,
            link=http,
            transport="http",
            principal=head.principal,
            owner=claimed.owner or head.owner,
            epoch=claimed.epoch,
            _runtime=self.parts.runtime,
        )
        self.parts.admission.session_began(record.identity)
        restore(session, record, era)
        session.open()
        session.inbox.sleep()
        return http

    async def _end_calls(self, http: HttpLink, head: HttpRequest, claimed: Claimed, *, may_rerun: bool) -> None:
        """Run the calls again that the process which died has not answered, or answer them with an error."""
        app = self.parts.runtime.app
        for name, data in claimed.calls.items():
            call = read_call(data)
            if call is None or not call.ids:
                continue
            key = StreamKey(http.session.id, name)
            last = await self.parts.store.reopen(key, owner=http.session.owner)
            # The declaration of now decides: another version of the server may run.
            reruns = may_rerun and call.params is not None and app.may_rerun(call.method, call.params)
            if not (reruns and await run_again(http, head, name, call, last)):
                self.parts.store.append(key, died(call), last=True)
