"""What this side wants of the peer: requests of our own, questions that travel in results, things to tell.

The lower half of the machine: it keeps the books of asks and knows nothing of what the peer asks for, save the calls
that asks belong to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from mcptrio._peer.effects import Effect, Gather, Ignored, Send, Settle
from mcptrio._peer.era import Era, Role
from mcptrio._peer.ledger import Entry, Ledger, Round
from mcptrio._peer.messages import Asked, Cause, Notified
from mcptrio._peer.states import State
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Notification, Request
from mcptrio.errors import CapabilityMissing, LinkClosed, LocalProtocolError, MCPTrioException


class Asks(Entity, kw_only=True):
    """Our requests to one peer, and what it declared that it can do."""

    role: Role
    """Which role this side plays."""
    state: State = State.NEW
    era: Era | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    """What the other side declared."""
    _ledger: Ledger = field(default_factory=Ledger)
    _held: list[Asked] | None = None
    """Asks that wait for `notifications/initialized`."""

    def _ask(self, asked: Asked) -> list[Effect]:
        call = asked.call
        if call is not None and call not in self._ledger:
            return [Settle(asked.reply, None, LinkClosed("the call that asks has ended"))]
        if call is not None and self._ledger[call].start.era.features.asks_in_results:
            return self._question(self._ledger[call], asked)
        if self.role is Role.SERVER and self.state is State.OPEN and asked.method != "ping":
            # basic/lifecycle: a server asks nothing but ping before `initialized`
            if self._held is None:
                self._held = []
            self._held.append(asked)
            return []
        era = self._ledger[call].start.era if call is not None else self.era
        try:
            self._may_ask(era, asked, self.capabilities)
        except LocalProtocolError as error:
            return [Settle(asked.reply, None, error)]
        ask = self._ledger.ask(asked.method, asked.reply, call)
        params = asked.params
        if asked.wants_progress:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": ask.id}}
        link = self._ledger[call].start.link if call is not None else None
        return [Send(Request(ask.id, asked.method, params), link)]

    def _may_ask(self, era: Era | None, asked: Asked, declared: Mapping[str, Any]) -> None:
        if era is None:
            if self.role is Role.SERVER:
                raise LocalProtocolError(f"{asked.method} cannot be asked before the client initialized the session")
            return
        if asked.method in era.lacks:
            raise CapabilityMissing(f"{asked.method} does not exist at protocol version {era.date}")
        missing = era.missing(declared, asked.method, asked.params)
        if missing is not None:
            other = "client" if self.role is Role.SERVER else "server"
            wanted = msgspec.json.encode(missing).decode()
            raise CapabilityMissing(
                f"{asked.method} needs a capability that the {other} did not declare: {wanted}", required=missing
            )

    def _give_up(self, reply: Any, reason: str) -> list[Effect]:
        for call in self._ledger.calls():
            round = self._ledger[call].round
            if round is not None and any(q.reply is reply for q in round.questions.values()):
                return self._withdraw(call, round, reply)
        ask = self._ledger.find_ask(reply)
        if ask is None:
            if self._held is not None:
                self._held = [asked for asked in self._held if asked.reply is not reply]
            return []
        self._ledger.answer(ask.id)
        if ask.method == "initialize":  # basic/utilities/cancellation: it must not be cancelled
            return []
        entry = self._ledger[ask.call] if ask.call is not None and ask.call in self._ledger else None
        return [self._cancel_ask(ask.id, reason, entry.start.link if entry is not None else None)]

    def _cancel_ask(self, request_id: int | str, reason: str, link: Any) -> Send:
        return Send(Notification("notifications/cancelled", {"requestId": request_id, "reason": reason}), link)

    def _drop_asks(self, entry: Entry) -> list[Effect]:
        """The call has ended: nobody needs what it asked for. Who still waits (a zombie) is told."""
        call = entry.start.call
        effects: list[Effect] = []
        gone = "the call that asked has ended"
        if entry.round is not None:
            effects += [Settle(q.reply, None, LinkClosed(gone)) for q in entry.round.questions.values()]
        for ask_id in sorted(entry.asks or ()):
            ask = self._ledger.answer(ask_id)
            if ask is not None:
                effects.append(self._cancel_ask(ask.id, gone, entry.start.link))
                effects.append(Settle(ask.reply, None, LinkClosed(gone)))
        if self._held:
            effects += [Settle(a.reply, None, LinkClosed(gone)) for a in self._held if a.call == call]
            self._held = [a for a in self._held if a.call != call]
        return effects

    def _settle_all(self, cause: Cause) -> list[Effect]:
        """No answer will come to anything that was asked."""
        effects: list[Effect] = []
        for ask in self._ledger.asks():
            self._ledger.answer(ask.id)
            effects.append(Settle(ask.reply, None, LinkClosed(f"{ask.method}: {cause.value}")))
        held, self._held = self._held, None
        return effects + [Settle(a.reply, None, LinkClosed(f"{a.method}: {cause.value}")) for a in held or ()]

    # -- telling

    def _notify(self, told: Notified) -> list[Effect]:
        if told.call is None:
            if self.era is None or (self.role is Role.SERVER and self.state is not State.READY):
                return [Ignored("early_notification")]
            if told.method in self.era.lacks:
                return [Ignored("notification_of_another_date")]
            return [Send(Notification(told.method, told.params), None)]
        if told.call not in self._ledger:
            return [Ignored("late_notification")]
        start = self._ledger[told.call].start
        if told.method in start.era.lacks:
            return [Ignored("notification_of_another_date")]
        if self._is_parked(told.call):
            return [Ignored("parked_notification")]  # its request was answered; the next one has not come yet
        return [Send(Notification(told.method, told.params), start.link)]

    # -- questions that travel in results

    def _is_parked(self, call: int) -> bool:
        entry = self._ledger.get(call)
        return entry is not None and entry.round is not None and entry.round.parked

    def _question(self, entry: Entry, asked: Asked) -> list[Effect]:
        start = entry.start
        try:
            if start.method not in start.era.may_ask:
                raise LocalProtocolError(f"a handler of {start.method} cannot ask anything at {start.era.date}")
            self._may_ask(start.era, asked, start.capabilities or {})
            if entry.round is None:
                entry.round = Round()
            if asked.key in entry.round.questions:
                raise LocalProtocolError(f"two questions with the key {asked.key!r} wait at the same time")
        except LocalProtocolError as error:
            return [Settle(asked.reply, None, error)]
        entry.round.questions[asked.key] = asked
        entry.round.latest = asked.reply
        return []

    def _withdraw(self, call: int, round: Round, reply: Any) -> list[Effect]:
        """A question is not needed any more. Those that waited for it, to leave together, wait no longer."""
        round.questions = {key: q for key, q in round.questions.items() if q.reply is not reply}
        if round.latest is not reply or round.parked or not round.questions:
            return []
        round.latest = next(reversed(round.questions.values())).reply
        return [Gather(call, round.latest)]


def usable_answers(questions: Mapping[str, Asked], given: object) -> dict[str, Any]:
    """The answers that fit a question. basic/patterns/mrtr: what is extra is ignored, what is missing asked again."""
    if not isinstance(given, dict):
        return {}
    found: dict[str, Any] = {}
    for key, question in questions.items():
        if key in given:
            try:
                if question.check is not None:
                    question.check(given[key])
            except (MCPTrioException, ValueError):
                continue
            found[key] = given[key]
    return found
