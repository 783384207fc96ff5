"""The protocol of one session, for either role: `step` takes a message and returns effects.

There is no `async` here, no clock and no randomness: ids, eras and time come in from outside. A session's loop feeds
one message after the other and performs the effects, so every race of the protocol (a cancel that crosses an answer, an
answer that crosses a timeout) is decided by the order of two messages and can be written down as a test. The ledger
holds the open calls and asks, the table of `states` says what may happen when, and the era what a date allows.

Longer than 400 lines because it is one table of reactions: every message changes the same books, and a race can only be
judged where all reactions stand next to each other. Our own requests to the peer are in `asks`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextvars import Context
from typing import Any, Final, Protocol

from msgspec import field

from mcptrio._peer.asks import cancel_request, drop_asks, give_up, notify, send_ask, settle_asks
from mcptrio._peer.effects import (
    AskInResult,
    Attach,
    Close,
    Effect,
    End,
    Gather,
    Ignored,
    Progressed,
    Send,
    Settle,
    Start,
    Stop,
)
from mcptrio._peer.era import Era, Role
from mcptrio._peer.ledger import Entry, Group, Ledger
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.messages import (
    Answered,
    Asked,
    Cause,
    Drained,
    Expired,
    Failed,
    Finished,
    Gathered,
    GaveUp,
    HandedOver,
    HungUp,
    LinkLost,
    Message,
    Notified,
    Opened,
    Outcome,
    Received,
    ReplyFuture,
    Resumed,
)
from mcptrio._peer.states import State, move
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import AnyFrame, Batch, Error, Malformed, Notification, Request, Response, reject
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    MCPError,
    RemoteProtocolError,
)

_NEVER_WAIT: Final = frozenset({"notifications/cancelled", "notifications/initialized", "notifications/progress"})


class Eras(Protocol):
    """The dates that this side serves."""

    def negotiate(self, requested: object) -> Era:
        """Return the date to answer `initialize` with: the requested one if served, else the newest stateful one."""
        ...

    def declared(self, frame: Request) -> tuple[Era, dict[str, Any]] | None:
        """Return the stateless date that a request declares, with the client's capabilities; None if it declares none.

        Raises:
            RemoteProtocolError: the declaration is invalid.
        """
        ...


class Peer(Entity, kw_only=True):
    """The protocol machine of one session.

    Owns: the ledger.
    """

    role: Role
    """The role of this side."""
    state: State = State.NEW
    era: Era | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    """The capabilities that the peer declared."""
    ledger: Ledger = field(default_factory=Ledger)
    eras: Eras
    routes: Container[str]
    """The methods that have a handler."""
    max_running: int = 32
    offers: Mapping[str, Any] | None = None
    """The capabilities that this side declared, once it has."""
    offers_now: Callable[[], Container[str]] | None = None
    """Returns the capabilities that this side would declare now, for requests without a session."""
    _opening: int | None = None
    """The call that handles `initialize`; others wait for it, since they may need what it sets up."""

    @property
    def calls(self) -> int:
        """Unanswered requests of the peer."""
        return len(self.ledger.calls) - self.ledger.parked

    @property
    def parked(self) -> int:
        """Handlers that wait for their request to be repeated with answers."""
        return self.ledger.parked

    @property
    def at_work(self) -> int:
        """Requests of the peer that run or wait to run, without those that only listen."""
        return self.ledger.running + len(self.ledger.waiting)

    @property
    def listening(self) -> int:
        """Requests of the peer that only wait for events."""
        return self.calls - self.at_work

    @property
    def is_open(self) -> bool:
        """Whether `initialize` has been answered."""
        return self.state is not State.NEW and self._opening is None

    def step(self, message: Message) -> list[Effect]:
        if type(message) is Received:  # every call consists of these two: test for them first, by identity
            return self._receive(message.frame, message.link, message.context)
        if type(message) is Finished:
            return self._finish(message.call, message.outcome)
        match message:
            case Notified():
                return notify(self, message)
            case Asked():
                return send_ask(self, message)
            case Gathered(call, reply):
                return self._leave_round(call, reply)
            case Resumed(call, start):
                return self._resume(call, start)
            case HandedOver(call):
                self.ledger.close(call)
                return self._begin_waiting()
            case Expired(call):
                return self._stop(call, Cause.EXPIRED) if self.ledger.is_parked(call) else []
            case GaveUp(reply, reason):
                return give_up(self.ledger, reply, reason)
            case LinkLost(link):
                calls = tuple(self.ledger.calls)
                lost = [c for c in calls if self.ledger[c].start.link is link and not self.ledger.is_parked(c)]
                return self._still_wanted([e for call in lost for e in self._stop(call, Cause.DISCONNECT)])
            case Opened(era, capabilities, ready):
                self.state, self.era, self.capabilities = State.READY if ready else State.OPEN, era, capabilities
                return []
            case Drained(cause):
                calls = tuple(self.ledger.calls)
                return self._still_wanted([e for call in calls for e in self._answer_and_stop(call, cause)])
            case HungUp(cause):
                return self._hang_up(cause)

    def make_room_for(self, call: int) -> None:
        """Exempt a call that only waits for events from the limit of running calls."""
        entry = self.ledger.calls.get(call)
        if entry is not None and entry.running:
            entry.running = False
            self.ledger.running -= 1

    # -- messages from the peer

    def _receive(self, frame: Any, link: ReplyLink, context: Context | None) -> list[Effect]:
        if type(frame) is Request:
            try:
                return self._on_request(frame, link, context, None)
            except RemoteProtocolError as error:
                return self._refuse(error, link)
        match frame:
            case Notification():
                return self._on_notification(frame, context)
            case Response(request_id, result):
                ask = self.ledger.answer(request_id)
                return [Ignored("unknown_response") if ask is None else Settle(ask.reply, result, call=ask.call)]
            case Error(request_id, code, text, data):
                ask = self.ledger.answer(request_id)
                if ask is None:
                    return [Ignored("unknown_response")]
                return [Settle(ask.reply, None, MCPError(code, text, data))]
            case Malformed(fault):
                if not link.per_request and self._call_of(fault.request_id) is not None:
                    fault = _without_id(fault)  # otherwise it would be taken for the response to the call with this id
                return self._refuse(fault, link)
            case _:
                return self._on_batch(frame, link, context)

    def _on_request(
        self, frame: Request, link: ReplyLink, context: Context | None, group: Group | None
    ) -> list[Effect]:
        method, params, request_id = frame.method, frame.params, frame.id
        ledger = self.ledger
        if request_id in ledger.by_id:
            # An error with this id on a pipe would be taken for the response to the first request.
            shown = request_id if group is None and link.per_request else None
            raise RemoteProtocolError(f"request id {request_id!r:.80} is already in use", request_id=shown)
        era, capabilities = self.era, None
        if self.role is Role.SERVER:
            # In an open session only `_meta`, or a method of another date, can declare another version.
            opened = self.state is State.READY and self.era is not None and method not in self.era.lacks
            alone = None if opened and "_meta" not in params else self.eras.declared(frame)
            if alone is not None:
                if group is not None:
                    text = "a request that declares its version cannot be in a batch"
                    raise RemoteProtocolError(text, request_id=request_id)
                era, capabilities = alone
            elif self.state is not State.READY or method == "initialize":
                era = self._open(method, params, request_id)
        if era is None:
            era = self.eras.negotiate(None)
        if not self._serves(era, method):
            raise RemoteProtocolError(
                f"method not found: {method!r:.80}",
                code=METHOD_NOT_FOUND,
                request_id=request_id,
                http_status=era.http.unknown_method_status,
            )
        meta = params.get("_meta")
        token = meta.get("progressToken") if type(meta) is dict else None
        if token is not None and type(token) is not str and type(token) is not int:
            token = None
        ledger.last_call += 1
        start = Start(ledger.last_call, request_id, method, params, era, link, context, token, capabilities)
        return self._admit(Entry(start, group))

    def _open(self, method: str, params: dict[str, Any], request_id: int | str) -> Era | None:
        """Decide what a request does in a session that is being opened."""
        after = move(self.state, method)
        if after is None:
            text = "the session is initialized already" if method == "initialize" else "send initialize first"
            raise RemoteProtocolError(f"{method!r:.80} is not possible now: {text}", request_id=request_id)
        if method == "initialize":
            self.era = self.eras.negotiate(params.get("protocolVersion"))
            declared = params.get("capabilities")
            self.capabilities = declared if isinstance(declared, dict) else {}
            self.state = after
        return self.era

    def _serves(self, era: Era, method: str) -> bool:
        if method not in self.routes or method in era.lacks:
            return False
        spec = era.requests.get(method)
        if spec is None:
            return True  # a custom method
        if spec.receiver is not None and spec.receiver is not self.role:
            return False
        if not spec.needs:
            return True
        if era.stateful:
            return self.offers is None or spec.needs[0] in self.offers
        return self.offers_now is None or spec.needs[0] in self.offers_now()

    def _admit(self, entry: Entry) -> list[Effect]:
        ledger, start = self.ledger, entry.start
        ledger.calls[start.call] = entry
        if start.request_id is not None:
            ledger.by_id[start.request_id] = start.call
        if start.method == "ping":
            return [start]  # does not wait for other calls and takes no slot from them
        if start.method == "initialize" and start.request_id is not None:
            self._opening = start.call
        elif ledger.running >= self.max_running or self._opening is not None:
            ledger.wait(entry)
            return []
        entry.running = True
        ledger.running += 1
        return [start]

    def _refuse(self, error: RemoteProtocolError, link: ReplyLink) -> list[Effect]:
        if error.request_id is None and not link.per_request:
            return self._complain(error)
        return [Send(reject(error), link, final=True, status=error.http_status)]

    def _complain(self, error: RemoteProtocolError) -> list[Effect]:
        """Report a message without a readable id to the peer, if its date allows an error without an id."""
        if self.era is not None and not self.era.features.errors_without_id:
            return [Ignored("no_id")]
        return [Send(reject(error), None)]

    def _on_notification(self, frame: Notification, context: Context | None) -> list[Effect]:
        method, params = frame.method, frame.params
        match method:
            case "notifications/cancelled":
                call = self._call_of(params.get("requestId"))
                if call is None or self.ledger[call].start.method == "initialize":
                    return [Ignored("unknown_cancel")]
                return self._stop(call, Cause.CLIENT_CANCEL)
            case "notifications/progress":
                ask = self.ledger.peek(params.get("progressToken"))
                return [Ignored("unknown_progress") if ask is None else Progressed(ask.reply, params)]
            case "notifications/initialized" if self.role is Role.SERVER and self.state is State.OPEN:
                self.state = State.READY
                held, self.ledger.held = self.ledger.held, []
                begun = [e for asked in held for e in send_ask(self, asked)]
                return begun + self._start_notification(frame, context)
        return self._start_notification(frame, context)

    def _start_notification(self, frame: Notification, context: Context | None) -> list[Effect]:
        # A request's method without an id is not run, because its result could not be returned.
        era = self.era
        if era is None or frame.method not in self.routes or frame.method in era.lacks or frame.method in era.requests:
            return [Ignored("unknown_notification")] if frame.method != "notifications/initialized" else []
        self.ledger.last_call += 1
        start = Start(self.ledger.last_call, None, frame.method, frame.params, era, None, context, None)
        return self._admit(Entry(start))

    def _call_of(self, request_id: object) -> int | None:
        if type(request_id) is not int and type(request_id) is not str:
            return None
        return self.ledger.by_id.get(request_id)

    def _on_batch(self, frames: Batch, link: ReplyLink, context: Context | None) -> list[Effect]:
        try:
            check_batch(self.era, frames)
        except RemoteProtocolError as error:
            asked = [frame.id for frame in frames if isinstance(frame, Request) and frame.id not in self.ledger.by_id]
            if link.per_request or not asked:
                return self._refuse(error, link)
            return [Send(Error(each, error.code, error.message, error.data), link) for each in asked]
        expected = sum(isinstance(f, Request | Malformed) for f in frames)
        group = Group(expected, link)
        effects: list[Effect] = []
        for frame in frames:
            match frame:
                case Malformed(fault):
                    group.answers.append(reject(fault))
                case Request():
                    try:
                        effects += self._on_request(frame, link, context, group)
                    except RemoteProtocolError as error:
                        group.answers.append(reject(error))
                case _:
                    effects += self._receive(frame, link, context)
        return effects + self._close_group(group)

    def _close_group(self, group: Group) -> list[Effect]:
        answers = self.ledger.close_group(group)
        return [] if answers is None else [Send(answers, group.link, final=True)]

    # -- outcomes of handlers

    def _finish(self, call: int, outcome: Outcome) -> list[Effect]:
        entry = self.ledger.calls.get(call)
        if entry is None:
            return []  # the call was stopped while its outcome was queued
        if entry.round is not None and entry.round.parked:
            entry.round.outcome = outcome  # kept until the request is repeated
            return []
        effects = drop_asks(self.ledger, entry) if entry.asks or entry.round is not None or self.ledger.held else []
        if entry.start.request_id is not None:
            effects += self._reply(entry, entry.start.request_id, outcome)
        self.ledger.close(call)
        if call == self._opening:
            self._opening = None
            if type(outcome) is Failed:
                return effects + self._fail_opening()
        return effects + self._begin_waiting() if self.ledger.waiting else effects

    def _fail_opening(self) -> list[Effect]:
        """Refuse the requests that waited for an initialization which has failed."""
        self.state, self.era = State.NEW, None
        waited = list(iter(self.ledger.next_waiting, None))
        refusal = Failed(INVALID_REQUEST, "not possible: initialize failed")
        return [e for entry in waited for e in self._finish(entry.start.call, refusal)]

    def _reply(self, entry: Entry, request_id: int | str, outcome: Outcome) -> list[Effect]:
        """Answer a request."""
        start, status = entry.start, 200
        frame: Response | Error
        if isinstance(outcome, Answered):
            frame = Response(request_id, outcome.result)
        else:
            frame = Error(request_id, outcome.code, outcome.message, outcome.data)
            status = outcome.http_status
            if outcome.code == MISSING_CLIENT_CAPABILITY:
                status = start.era.http.missing_capability_status
        if entry.group is not None:
            self.ledger.gather(entry.group, frame)
            return self._close_group(entry.group)
        effects: list[Effect] = [Send(frame, start.link, final=True, status=status)]
        if start.method == "subscriptions/listen" and type(outcome) is Answered and _is_pipe(start.link):
            # 2026-07-28 basic/patterns/cancellation: a server MUST say so when it ends a subscription. The end of a
            # link that stands for the request says it too.
            effects.append(cancel_request(request_id, "the subscription has ended", start.link))
        return effects

    def _begin_waiting(self) -> list[Effect]:
        ledger = self.ledger
        effects: list[Effect] = []
        while ledger.waiting and ledger.running < self.max_running and self._opening is None:
            entry = ledger.next_waiting()
            assert entry is not None
            entry.running = True
            ledger.running += 1
            effects.append(entry.start)
        return effects

    def _still_wanted(self, effects: list[Effect]) -> list[Effect]:
        """Drop the handlers that were started in place of stopped ones and then stopped themselves."""
        return [e for e in effects if type(e) is not Start or e.call in self.ledger]

    def _stop(self, call: int, cause: Cause) -> list[Effect]:
        """End a call whose response is no longer wanted."""
        parked = self.ledger.is_parked(call)
        entry = self.ledger.close(call)
        if entry is None:
            return []
        if call == self._opening:
            self._opening = None
        # First: a handler that waits for a reply is cancelled there; only one that ignores cancellation sees the error.
        effects: list[Effect] = [Stop(call, cause), *drop_asks(self.ledger, entry)]
        if entry.group is not None:
            entry.group.expected -= 1
            if not entry.group.expected and entry.group.link.per_request:
                effects.append(End(entry.group.link))
            effects += self._close_group(entry.group)
        elif not parked and entry.start.link is not None and entry.start.link.per_request:
            effects.append(End(entry.start.link))
        return effects + self._begin_waiting()

    def _answer_and_stop(self, call: int, cause: Cause) -> list[Effect]:
        if call not in self.ledger:
            return []
        if self.ledger.is_parked(call):
            return self._stop(call, cause)
        answered = self._finish(call, Failed(INTERNAL_ERROR, cause.value))
        return [Stop(call, cause), *answered]

    # -- input requests that travel in results

    def _leave_round(self, call: int, reply: ReplyFuture) -> list[Effect]:
        """Answer the request with the waiting input requests, unless another one came after that of `reply`."""
        entry = self.ledger.calls.get(call)
        round = entry.round if entry is not None else None
        if entry is None or round is None or round.parked or round.latest is not reply or not round.questions:
            return []
        self.ledger.park(entry, round)
        return [AskInResult(entry.start, round.sent), *self._begin_waiting()]

    def _resume(self, call: int, start: Start) -> list[Effect]:
        entry = self.ledger.calls.get(call)
        round = entry.round if entry is not None else None
        if entry is None or round is None or not round.parked:
            return [Ignored("unknown_retry")]
        self.ledger.attach(entry, round, start)
        effects: list[Effect] = [Attach(call, start)]
        if round.outcome is not None:
            entry.round = None
            return effects + self._finish(call, round.outcome)
        # Only keys that the client was sent: a later input request may reuse the key of one that has timed out.
        given = start.params.get("inputResponses", {})
        answered = [key for key, asked in round.sent.items() if key in given and round.questions.get(key) is asked]
        effects += [Settle(round.questions.pop(key).reply, given[key]) for key in answered]
        if round.questions:
            round.latest = next(reversed(round.questions.values())).reply
            if not answered:
                return effects + self._leave_round(call, round.latest)
            effects.append(Gather(call, round.latest))
        return effects

    # -- the end

    def _hang_up(self, cause: Cause) -> list[Effect]:
        # First: a handler that waits for a reply gets an error and may clean up before it is stopped.
        effects = settle_asks(self.ledger, cause)
        stopped = self._still_wanted([e for call in tuple(self.ledger.calls) for e in self._stop(call, cause)])
        return [*effects, *stopped, Close(cause)]


def may_start_call(frame: AnyFrame) -> bool:
    """Return whether a message may start a handler, so that it has to wait while there is no room for one.

    The others never wait: they may be what a running handler waits for.
    """
    if type(frame) is Request:
        return True
    if type(frame) is Notification:
        return frame.method not in _NEVER_WAIT
    return type(frame) is tuple and any(map(may_start_call, frame))


def check_batch(era: Era | None, frames: Batch) -> None:
    """Refuse a batch that this date does not allow or that mixes requests with responses."""
    if era is None or not era.batching:
        raise RemoteProtocolError("a batch is not allowed at this protocol version", code=INVALID_REQUEST)
    asks = any(isinstance(f, Request | Notification) for f in frames)
    # 2025-03-26 basic/lifecycle: initialize MUST NOT be part of a batch
    if any(isinstance(f, Request) and f.method == "initialize" for f in frames):
        raise RemoteProtocolError("initialize must not be part of a batch", code=INVALID_REQUEST)
    # 2025-03-26 basic/transports: a body holds requests and notifications, or responses, never both
    if asks and any(isinstance(f, Response | Error) for f in frames):
        raise RemoteProtocolError("a batch holds requests or responses, not both", code=INVALID_REQUEST)


def _is_pipe(link: ReplyLink | None) -> bool:
    return link is not None and not link.per_request


def _without_id(error: RemoteProtocolError) -> RemoteProtocolError:
    return RemoteProtocolError(error.message, code=error.code, http_status=error.http_status, data=error.data)
