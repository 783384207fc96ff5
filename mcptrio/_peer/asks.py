"""Requests and notifications that this side sends, and input requests that travel in results.

The reactions of the machine to what its own side wants. A function that only changes the books takes the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcptrio._peer.effects import Effect, Gather, Ignored, Send, Settle
from mcptrio._peer.era import Era, Role
from mcptrio._peer.ledger import Entry, Ledger, Round
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.messages import Asked, Cause, Notified, ReplyFuture
from mcptrio._peer.states import State
from mcptrio._wire.jsonrpc import Notice, Notification, Request
from mcptrio.errors import CapabilityMissing, ConnectionLost, LocalProtocolError

if TYPE_CHECKING:
    from mcptrio._peer.machine import Peer


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


def send_ask(peer: Peer, asked: Asked) -> list[Effect]:
    """Send a request, hold it back until the session is initialized, or let it travel in a result."""
    ledger, call = peer.ledger, asked.call
    entry = None if call is None else ledger.calls.get(call)
    if call is not None and entry is None:
        return [Settle(asked.reply, None, ConnectionLost("the call that asks has ended"))]
    if entry is not None and entry.start.era.features.asks_in_results:
        return _ask_in_result(peer.role, entry, asked)
    if peer.role is Role.SERVER and peer.state is State.OPEN and asked.method != "ping":
        # basic/lifecycle: a server sends no request except ping before `initialized`
        ledger.held.append(asked)
        return []
    try:
        _check(peer.role, peer.era if entry is None else entry.start.era, asked, peer.capabilities)
    except LocalProtocolError as error:
        return [Settle(asked.reply, None, error)]
    ask = ledger.ask(asked.method, asked.reply, call)
    params = asked.params
    if asked.wants_progress:
        params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": ask.id}}
    return [Send(Request(ask.id, asked.method, params), None if entry is None else entry.start.link)]


def _check(role: Role, era: Era | None, asked: Asked, declared: Mapping[str, Any]) -> None:
    """Raise `LocalProtocolError` if the other side would not accept a request."""
    if era is None:
        if role is Role.SERVER:
            raise LocalProtocolError(f"{asked.method} cannot be sent before the client has initialized the session")
        return
    if asked.method in era.lacks:
        raise CapabilityMissing(f"{asked.method} does not exist at protocol version {era.date}")
    check_capability(era, declared, asked.method, asked.params, "client" if role is Role.SERVER else "server")


def give_up(ledger: Ledger, reply: ReplyFuture, reason: str) -> list[Effect]:
    """Withdraw a request, because no task waits for its reply any more."""
    for call, entry in ledger.calls.items():
        if entry.round is not None and any(q.reply is reply for q in entry.round.questions.values()):
            return _withdraw(call, entry.round, reply)
    ask = ledger.find_ask(reply)
    if ask is None:
        ledger.held = [asked for asked in ledger.held if asked.reply is not reply]
        return []
    ledger.answer(ask.id)
    if ask.method == "initialize":  # basic/utilities/cancellation: it must not be cancelled
        return []
    asking = None if ask.call is None else ledger.calls.get(ask.call)
    return [cancel_request(ask.id, reason, None if asking is None else asking.start.link)]


def cancel_request(request_id: int | str, reason: str, link: ReplyLink | None) -> Send:
    return Send(Notification("notifications/cancelled", {"requestId": request_id, "reason": reason}), link)


def drop_asks(ledger: Ledger, entry: Entry) -> list[Effect]:
    """Withdraw the outgoing requests of a call that has ended; a zombie that still waits gets `ConnectionLost`."""
    call = entry.start.call
    effects: list[Effect] = []
    gone = "the call that asked has ended"
    if entry.round is not None:
        effects += [Settle(q.reply, None, ConnectionLost(gone)) for q in entry.round.questions.values()]
    for ask_id in sorted(entry.asks or ()):
        ask = ledger.answer(ask_id)
        if ask is not None:
            effects.append(cancel_request(ask.id, gone, entry.start.link))
            effects.append(Settle(ask.reply, None, ConnectionLost(gone)))
    if ledger.held:
        effects += [Settle(a.reply, None, ConnectionLost(gone)) for a in ledger.held if a.call == call]
        ledger.held = [a for a in ledger.held if a.call != call]
    return effects


def settle_asks(ledger: Ledger, cause: Cause) -> list[Effect]:
    """Fail all outgoing requests: no answer will arrive."""
    waiting = [(ask.method, ask.reply) for ask in ledger.asks()]
    waiting += [(asked.method, asked.reply) for asked in ledger.held]
    ledger.forget_asks()
    return [Settle(reply, None, ConnectionLost(f"{method}: {cause.value}")) for method, reply in waiting]


def notify(peer: Peer, message: Notified) -> list[Effect]:
    """Send a notification, about a call or about none."""
    if message.call is None:
        if peer.era is None or (peer.role is Role.SERVER and peer.state is not State.READY):
            return [Ignored("early_notification")]
        if message.method in peer.era.lacks:
            return [Ignored("notification_of_another_date")]
        return [Send(Notice(message.method, message.params), None)]
    entry = peer.ledger.calls.get(message.call)
    if entry is None:
        return [Ignored("late_notification")]
    if message.method in entry.start.era.lacks:
        return [Ignored("notification_of_another_date")]
    if entry.round is not None and entry.round.parked:
        return [Ignored("parked_notification")]  # its request was answered and has not been repeated yet
    return [Send(Notice(message.method, message.params), entry.start.link)]


# -- input requests that travel in results


def _ask_in_result(role: Role, entry: Entry, asked: Asked) -> list[Effect]:
    start = entry.start
    try:
        if start.method not in start.era.may_ask:
            raise LocalProtocolError(f"a handler of {start.method} cannot ask the client at {start.era.date}")
        _check(role, start.era, asked, start.capabilities or {})
        if entry.round is None:
            entry.round = Round()
        if asked.key in entry.round.questions:
            raise LocalProtocolError(f"two pending input requests have the key {asked.key!r}")
    except LocalProtocolError as error:
        return [Settle(asked.reply, None, error)]
    entry.round.questions[asked.key] = asked
    entry.round.latest = asked.reply
    return []


def _withdraw(call: int, round: Round, reply: ReplyFuture) -> list[Effect]:
    """Withdraw an input request. Others that were held back to be sent together with it are released."""
    round.questions = {key: q for key, q in round.questions.items() if q.reply is not reply}
    if round.latest is not reply or round.parked or not round.questions:
        return []
    round.latest = next(reversed(round.questions.values())).reply
    return [Gather(call, round.latest)]
