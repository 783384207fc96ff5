"""Requests and notifications that this side sends, and input requests that travel in results.

The lower half of the machine: it tracks outgoing requests and, of incoming calls, knows only those that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from mcptrio._peer.effects import Effect, Gather, Ignored, Send, Settle
from mcptrio._peer.era import Era, Role
from mcptrio._peer.ledger import Entry, Ledger, Round
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.messages import Asked, Cause, Notified, ReplyFuture
from mcptrio._peer.states import State
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Notice, Notification, Request
from mcptrio.errors import CapabilityMissing, ConnectionLost, LocalProtocolError


def check_capability(
    era: Era, declared: Mapping[str, Any], method: str, params: Mapping[str, Any], other: str = "client"
) -> None:
    """Raise `CapabilityMissing` if the other side has not declared what a request to it needs."""
    missing = era.missing(declared, method, params)
    if missing is not None:
        wanted = msgspec.json.encode(missing).decode()
        raise CapabilityMissing(
            f"{method} needs a capability that the {other} did not declare: {wanted}", required=missing
        )


class PeerAsks(Entity, kw_only=True):
    """The outgoing requests to one peer, and the capabilities that the peer declared."""

    role: Role
    """The role of this side."""
    state: State = State.NEW
    era: Era | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    """The capabilities that the peer declared."""
    ledger: Ledger = field(default_factory=Ledger)
    _held: list[Asked] | None = None
    """Outgoing requests that wait for `notifications/initialized`."""

    def _ask(self, asked: Asked) -> list[Effect]:
        call = asked.call
        if call is not None and call not in self.ledger:
            return [Settle(asked.reply, None, ConnectionLost("the call that asks has ended"))]
        if call is not None and self.ledger[call].start.era.features.asks_in_results:
            return self._question(self.ledger[call], asked)
        if self.role is Role.SERVER and self.state is State.OPEN and asked.method != "ping":
            # basic/lifecycle: a server sends no request except ping before `initialized`
            if self._held is None:
                self._held = []
            self._held.append(asked)
            return []
        era = self.ledger[call].start.era if call is not None else self.era
        try:
            self._may_ask(era, asked, self.capabilities)
        except LocalProtocolError as error:
            return [Settle(asked.reply, None, error)]
        ask = self.ledger.ask(asked.method, asked.reply, call)
        params = asked.params
        if asked.wants_progress:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": ask.id}}
        link = self.ledger[call].start.link if call is not None else None
        return [Send(Request(ask.id, asked.method, params), link)]

    def _may_ask(self, era: Era | None, asked: Asked, declared: Mapping[str, Any]) -> None:
        if era is None:
            if self.role is Role.SERVER:
                raise LocalProtocolError(f"{asked.method} cannot be sent before the client has initialized the session")
            return
        if asked.method in era.lacks:
            raise CapabilityMissing(f"{asked.method} does not exist at protocol version {era.date}")
        check_capability(era, declared, asked.method, asked.params, "client" if self.role is Role.SERVER else "server")

    def _give_up(self, reply: ReplyFuture, reason: str) -> list[Effect]:
        for call in tuple(self.ledger.calls):
            round = self.ledger[call].round
            if round is not None and any(q.reply is reply for q in round.questions.values()):
                return self._withdraw(call, round, reply)
        ask = self.ledger.find_ask(reply)
        if ask is None:
            if self._held is not None:
                self._held = [asked for asked in self._held if asked.reply is not reply]
            return []
        self.ledger.answer(ask.id)
        if ask.method == "initialize":  # basic/utilities/cancellation: it must not be cancelled
            return []
        entry = self.ledger[ask.call] if ask.call is not None and ask.call in self.ledger else None
        return [self._cancel_ask(ask.id, reason, entry.start.link if entry is not None else None)]

    def _cancel_ask(self, request_id: int | str, reason: str, link: ReplyLink | None) -> Send:
        return Send(Notification("notifications/cancelled", {"requestId": request_id, "reason": reason}), link)

    def _drop_asks(self, entry: Entry) -> list[Effect]:
        """Withdraw the outgoing requests of a call that has ended; a zombie that still waits gets `ConnectionLost`."""
        call = entry.start.call
        effects: list[Effect] = []
        gone = "the call that asked has ended"
        if entry.round is not None:
            effects += [Settle(q.reply, None, ConnectionLost(gone)) for q in entry.round.questions.values()]
        for ask_id in sorted(entry.asks or ()):
            ask = self.ledger.answer(ask_id)
            if ask is not None:
                effects.append(self._cancel_ask(ask.id, gone, entry.start.link))
                effects.append(Settle(ask.reply, None, ConnectionLost(gone)))
        if self._held:
            effects += [Settle(a.reply, None, ConnectionLost(gone)) for a in self._held if a.call == call]
            self._held = [a for a in self._held if a.call != call]
        return effects

    def _settle_all(self, cause: Cause) -> list[Effect]:
        """Fail all outgoing requests: no answer will arrive."""
        effects: list[Effect] = []
        for ask in self.ledger.asks():
            self.ledger.answer(ask.id)
            effects.append(Settle(ask.reply, None, ConnectionLost(f"{ask.method}: {cause.value}")))
        held, self._held = self._held, None
        return effects + [Settle(a.reply, None, ConnectionLost(f"{a.method}: {cause.value}")) for a in held or ()]

    # -- notifications

    def _notify(self, message: Notified) -> list[Effect]:
        if message.call is None:
            if self.era is None or (self.role is Role.SERVER and self.state is not State.READY):
                return [Ignored("early_notification")]
            if message.method in self.era.lacks:
                return [Ignored("notification_of_another_date")]
            return [Send(Notice(message.method, message.params), None)]
        entry = self.ledger.calls.get(message.call)
        if entry is None:
            return [Ignored("late_notification")]
        if message.method in entry.start.era.lacks:
            return [Ignored("notification_of_another_date")]
        if entry.round is not None and entry.round.parked:
            return [Ignored("parked_notification")]  # its request was answered and has not been repeated yet
        return [Send(Notice(message.method, message.params), entry.start.link)]

    # -- input requests that travel in results

    def _is_parked(self, call: int) -> bool:
        entry = self.ledger.calls.get(call)
        return entry is not None and entry.round is not None and entry.round.parked

    def _question(self, entry: Entry, asked: Asked) -> list[Effect]:
        start = entry.start
        try:
            if start.method not in start.era.may_ask:
                raise LocalProtocolError(f"a handler of {start.method} cannot ask the client at {start.era.date}")
            self._may_ask(start.era, asked, start.capabilities or {})
            if entry.round is None:
                entry.round = Round()
            if asked.key in entry.round.questions:
                raise LocalProtocolError(f"two pending input requests have the key {asked.key!r}")
        except LocalProtocolError as error:
            return [Settle(asked.reply, None, error)]
        entry.round.questions[asked.key] = asked
        entry.round.latest = asked.reply
        return []

    def _withdraw(self, call: int, round: Round, reply: ReplyFuture) -> list[Effect]:
        """Withdraw an input request. Others that were held back to be sent together with it are released."""
        round.questions = {key: q for key, q in round.questions.items() if q.reply is not reply}
        if round.latest is not reply or round.parked or not round.questions:
            return []
        round.latest = next(reversed(round.questions.values())).reply
        return [Gather(call, round.latest)]
