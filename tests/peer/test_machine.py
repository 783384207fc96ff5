"""The rules of the protocol, one message after the other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from mcptrio._peer.effects import Close, End, Ignored, Progressed, Send
from mcptrio._peer.messages import Cause, Drained, Failed, Finished, GaveUp, HungUp, LinkLost, Notified
from mcptrio._peer.states import OPENING, State, move
from mcptrio._wire.jsonrpc import Error, Malformed, Notice, Notification, Request, Response
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CapabilityMissing,
    ConnectionLost,
    LocalProtocolError,
    MCPError,
    RemoteProtocolError,
)

from .kit import (
    PIPE,
    NamedLink,
    asked,
    call,
    frames,
    initialize,
    new_server,
    raw,
    ready_server,
    received,
    settled,
    started,
    stopped,
)


def cancelled(request_id: Any) -> Notification:
    return Notification("notifications/cancelled", {"requestId": request_id})


# -- the life of a session


@pytest.mark.parametrize(
    ("state", "method", "after"),
    [
        (State.NEW, "initialize", State.OPEN),
        (State.NEW, "ping", State.NEW),
        (State.NEW, "tools/call", None),
        (State.OPEN, "tools/call", State.OPEN),
        (State.OPEN, "notifications/initialized", State.READY),
        (State.OPEN, "initialize", None),
        (State.READY, "tools/call", State.READY),
        (State.READY, "initialize", None),
    ],
)
def test_only_the_moves_of_the_table_are_possible(state: State, method: str, after: State | None) -> None:
    assert move(state, method) is after
    assert set(OPENING) == set(State)


def test_a_request_before_initialize_is_refused_and_a_ping_is_not() -> None:
    peer = new_server()
    (refusal,) = frames(peer.step(received(Request(1, "tools/call"))))
    assert (refusal.id, refusal.code) == (1, INVALID_REQUEST)
    assert "initialize" in refusal.message
    assert started(peer.step(received(Request(2, "ping")))) == ["ping"]


def test_a_second_initialize_is_refused_and_changes_nothing() -> None:
    peer = ready_server("2025-06-18")
    (refusal,) = frames(peer.step(received(initialize("2024-11-05"))))
    assert refusal.code == INVALID_REQUEST
    assert peer.era is not None
    assert peer.era.date == "2025-06-18"


@pytest.mark.parametrize("asked_for", ["1999-01-01", None, 7])
def test_an_unknown_version_is_answered_with_the_newest_stateful_one(asked_for: Any) -> None:
    peer = new_server()
    peer.step(received(Request(1, "initialize", {"protocolVersion": asked_for})))
    assert peer.era is not None
    assert peer.era.date == "2025-11-25"


def test_requests_wait_for_an_initialize_that_is_still_worked_on() -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize()))
    assert peer.step(received(Request(1, "tools/call"))) == []
    assert started(peer.step(received(Request(2, "ping")))) == ["ping"]
    effects = peer.step(Finished(opening.call, raw({})))
    assert type(effects[0]) is Send
    assert started(effects) == ["tools/call"]


def test_a_failed_initialize_leaves_no_session_and_refuses_what_waited_for_it() -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize()))
    peer.step(received(Request(1, "tools/call")))
    effects = peer.step(Finished(opening.call, Failed(-32602, "no")))
    assert [(f.id, f.code) for f in frames(effects)] == [("init", -32602), (1, INVALID_REQUEST)]
    assert started(effects) == []
    assert (peer.state, peer.era, peer.calls) == (State.NEW, None, 0)
    assert started(peer.step(received(initialize()))) == ["initialize"]


def test_initialize_cannot_be_cancelled() -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize()))
    assert peer.step(received(cancelled("init"))) == [Ignored("unknown_cancel")]
    assert len(frames(peer.step(Finished(opening.call, raw({}))))) == 1


# -- which methods are served


@pytest.mark.parametrize(
    ("date", "method", "served"),
    [
        ("2025-11-25", "tools/call", True),
        ("2025-11-25", "own/method", True),
        ("2025-11-25", "no/such", False),
        ("2025-11-25", "sampling/createMessage", False),  # a request to clients
        ("2025-11-25", "prompts/list", False),  # no route
    ],
)
def test_a_method_is_served_if_it_is_routed_and_for_us(date: str, method: str, served: bool) -> None:
    peer = ready_server(date)
    effects = peer.step(received(Request(1, method)))
    assert started(effects) == ([method] if served else [])
    assert [f.code for f in frames(effects)] == ([] if served else [METHOD_NOT_FOUND])


def test_a_feature_that_was_not_offered_is_not_served() -> None:
    peer = ready_server(offers={"prompts": {}})
    (refusal,) = frames(peer.step(received(Request(1, "tools/call"))))
    assert refusal.code == METHOD_NOT_FOUND
    assert started(peer.step(received(Request(2, "own/method")))) == ["own/method"]


# -- answers


def test_a_call_is_answered_once() -> None:
    peer = ready_server()
    start = call(peer, 7)
    assert frames(peer.step(Finished(start.call, raw({"a": 1})))) == [Response(7, raw({"a": 1}).result)]
    assert peer.step(Finished(start.call, raw({"a": 2}))) == []


def test_a_failure_is_answered_with_its_code_and_data() -> None:
    peer = ready_server()
    start = call(peer, 7)
    (answer,) = frames(peer.step(Finished(start.call, Failed(-5, "no", {"why": 1}))))
    assert answer == Error(7, -5, "no", {"why": 1})


def test_a_cancelled_call_is_never_answered() -> None:
    peer = ready_server()
    start = call(peer, 7)
    effects = peer.step(received(cancelled(7)))
    assert stopped(effects) == [start.call]
    assert frames(effects) == []
    assert peer.step(Finished(start.call, raw({}))) == []


@pytest.mark.parametrize("request_id", ["7", 8, None, 7.0, True, [7], {"a": 1}])
def test_a_cancel_that_names_no_running_call_is_ignored(request_id: Any) -> None:
    peer = ready_server()
    call(peer, 7)
    assert peer.step(received(cancelled(request_id))) == [Ignored("unknown_cancel")]


def test_a_number_and_a_text_are_different_ids() -> None:
    peer = ready_server()
    first, second = call(peer, 1), call(peer, "1")
    assert frames(peer.step(Finished(second.call, raw(2)))) == [Response("1", raw(2).result)]
    assert frames(peer.step(Finished(first.call, raw(1)))) == [Response(1, raw(1).result)]


def test_an_id_in_use_is_refused_without_disturbing_the_first_call() -> None:
    peer = ready_server()
    start = call(peer, 7)
    (refusal,) = frames(peer.step(received(Request(7, "tools/call"))))
    assert (refusal.id, refusal.code) == (None, INVALID_REQUEST)
    assert len(frames(peer.step(Finished(start.call, raw({}))))) == 1
    assert call(peer, 7).call != start.call  # free again


def test_an_id_in_use_is_named_where_the_answer_has_a_link_of_its_own() -> None:
    peer = ready_server()
    call(peer, 7)
    (refusal,) = frames(peer.step(received(Request(7, "tools/call"), NamedLink("post", per_request=True))))
    assert refusal.id == 7


# -- what cannot be read


@pytest.mark.parametrize(("date", "answered"), [("2024-11-05", False), ("2025-06-18", False), ("2025-11-25", True)])
def test_a_fault_without_an_id_is_answered_only_where_the_date_allows_it(date: str, answered: bool) -> None:
    peer = ready_server(date)
    effects = peer.step(received(Malformed(RemoteProtocolError("no JSON", code=PARSE_ERROR))))
    assert [f.code for f in frames(effects)] == ([PARSE_ERROR] if answered else [])


def test_a_fault_before_initialize_is_answered() -> None:
    (answer,) = frames(new_server().step(received(Malformed(RemoteProtocolError("no JSON", code=PARSE_ERROR)))))
    assert (answer.id, answer.code) == (None, PARSE_ERROR)


def test_a_fault_with_the_id_of_a_running_call_does_not_answer_that_call() -> None:
    peer = ready_server()
    start = call(peer, 7)
    (complaint,) = frames(peer.step(received(Malformed(RemoteProtocolError("bad", request_id=7)))))
    assert complaint.id is None
    assert len(frames(peer.step(Finished(start.call, raw({}))))) == 1


# -- room


def test_more_calls_than_may_run_wait_for_their_turn_in_order() -> None:
    peer = ready_server(max_running=2)
    first, _ = call(peer, 1), call(peer, 2)
    assert peer.step(received(Request(3, "tools/call"))) == []
    assert peer.step(received(Request(4, "tools/list"))) == []
    assert (peer.calls, len(peer.ledger.waiting)) == (4, 2)
    assert started(peer.step(Finished(first.call, raw({})))) == ["tools/call"]
    assert len(peer.ledger.waiting) == 1


def test_a_waiting_call_that_is_cancelled_makes_room_at_once() -> None:
    peer = ready_server(max_running=1)
    first = call(peer, 1)
    peer.step(received(Request(2, "tools/call")))
    peer.step(received(cancelled(2)))
    assert (peer.calls, len(peer.ledger.waiting)) == (1, 0)
    assert started(peer.step(Finished(first.call, raw({})))) == []


def test_stopping_a_call_gives_its_place_to_the_next() -> None:
    peer = ready_server(max_running=1)
    call(peer, 1)
    peer.step(received(Request(2, "tools/list")))
    assert started(peer.step(received(cancelled(1)))) == ["tools/list"]


# -- asks


def test_an_answer_settles_the_ask_it_names_and_only_once() -> None:
    peer = ready_server()
    start = call(peer, 1)
    (sent,) = frames(peer.step(asked(start, "reply")))
    assert (sent.method, type(sent.id)) == ("sampling/createMessage", int)
    assert settled(peer.step(received(Response(sent.id, {"x": 1})))) == [("reply", {"x": 1}, None)]
    assert peer.step(received(Response(sent.id, {"x": 2}))) == [Ignored("unknown_response")]


def test_an_error_answer_is_raised_to_the_asker() -> None:
    peer = ready_server()
    (sent,) = frames(peer.step(asked(call(peer, 1), "reply")))
    ((_, _, error),) = settled(peer.step(received(Error(sent.id, -1, "rejected", None))))
    assert isinstance(error, MCPError)
    assert error.code == -1


@pytest.mark.parametrize("request_id", ["1", 99, True, None])
def test_a_response_to_an_unknown_request_is_ignored(request_id: Any) -> None:
    peer = ready_server()
    peer.step(asked(call(peer, 1), "reply"))
    assert peer.step(received(Error(request_id, -1, "", None))) == [Ignored("unknown_response")]


def test_an_ask_leaves_on_the_link_of_its_call() -> None:
    post = NamedLink("post", per_request=True)
    peer = ready_server()
    (send,) = peer.step(asked(call(peer, 1, link=post), "reply"))
    assert isinstance(send, Send)
    assert send.link is post


def test_the_asks_of_a_call_end_with_it() -> None:
    """The peer gets a cancellation, and a caller that still waits gets an error."""
    peer = ready_server()
    start = call(peer, 1)
    (sent,) = frames(peer.step(asked(start, "reply")))
    effects = peer.step(Finished(start.call, raw({})))
    assert [f.params["requestId"] for f in frames(effects) if isinstance(f, Notification)] == [sent.id]
    ((reply, _, error),) = settled(effects)
    assert (reply, type(error)) == ("reply", ConnectionLost)
    assert peer.step(received(Response(sent.id, {}))) == [Ignored("unknown_response")]


def test_giving_up_cancels_the_ask_at_the_peer() -> None:
    peer = ready_server()
    (sent,) = frames(peer.step(asked(call(peer, 1), "reply")))
    (withdrawn,) = frames(peer.step(GaveUp("reply", "timeout")))
    assert withdrawn == Notification("notifications/cancelled", {"requestId": sent.id, "reason": "timeout"})
    assert peer.step(GaveUp("reply", "timeout")) == []


def test_asks_are_held_until_the_client_is_initialized_and_pings_are_not() -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize(sampling={})))
    peer.step(Finished(opening.call, raw({})))
    start = call(peer, 1)
    assert peer.step(asked(start, "held")) == []
    assert [f.method for f in frames(peer.step(asked(None, "ping", "ping")))] == ["ping"]
    (sent,) = frames(peer.step(received(Notification("notifications/initialized"))))
    assert sent.method == "sampling/createMessage"


@pytest.mark.parametrize("how", ["finished", "given up", "hung up"])
def test_a_held_ask_whose_caller_is_gone_is_never_sent(how: str) -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize(sampling={})))
    peer.step(Finished(opening.call, raw({})))
    start = call(peer, 1)
    peer.step(asked(start, "held"))
    match how:
        case "finished":
            effects = peer.step(Finished(start.call, raw({})))
            assert [reply for reply, _, _ in settled(effects)] == ["held"]
        case "given up":
            peer.step(GaveUp("held", "timeout"))
        case _:
            assert [reply for reply, _, _ in settled(peer.step(HungUp(Cause.DISCONNECT)))] == ["held"]
            return
    assert peer.step(received(Notification("notifications/initialized"))) == []


def test_a_capability_is_checked_before_anything_is_sent() -> None:
    peer = new_server()
    (opening,) = peer.step(received(initialize()))
    peer.step(Finished(opening.call, raw({})))
    peer.step(received(Notification("notifications/initialized")))
    effects = peer.step(asked(call(peer, 1), "reply"))
    ((_, _, error),) = settled(effects)
    assert isinstance(error, CapabilityMissing)
    assert error.required == {"sampling": {}}
    assert frames(effects) == []


def test_a_method_of_another_date_is_not_asked() -> None:
    peer = ready_server("2025-03-26")
    ((_, _, error),) = settled(peer.step(asked(call(peer, 1), "reply", "elicitation/create")))
    assert isinstance(error, CapabilityMissing)
    assert "2025-03-26" in str(error)


def test_nothing_can_be_asked_before_there_is_a_session() -> None:
    ((_, _, error),) = settled(new_server().step(asked(None, "reply", "roots/list")))
    assert isinstance(error, LocalProtocolError)


def test_progress_finds_the_ask_by_its_token() -> None:
    peer = ready_server()
    start = call(peer, 1)
    message = asked(start, "reply")
    message = type(message)(message.call, message.method, message.params, message.reply, True)
    (sent,) = frames(peer.step(message))
    assert sent.params["_meta"]["progressToken"] == sent.id
    progress = {"progressToken": sent.id, "progress": 1}
    assert peer.step(received(Notification("notifications/progress", progress))) == [Progressed("reply", progress)]
    other = Notification("notifications/progress", {"progressToken": True, "progress": 1})
    assert peer.step(received(other)) == [Ignored("unknown_progress")]


# -- notifications of our own


def test_a_notification_about_a_call_leaves_only_while_it_runs() -> None:
    peer = ready_server()
    start = call(peer, 1)
    notified = Notified(start.call, "notifications/message", Raw(b"{}"))
    assert frames(peer.step(notified)) == [Notice("notifications/message", Raw(b"{}"))]
    peer.step(Finished(start.call, raw({})))
    assert peer.step(notified) == [Ignored("late_notification")]


def test_a_list_change_is_sent_at_once_but_not_before_initialized() -> None:
    notified = Notified(None, "notifications/tools/list_changed", Raw(b"{}"))
    assert new_server().step(notified) == [Ignored("early_notification")]
    assert len(frames(ready_server().step(notified))) == 1


def test_a_notification_that_the_date_lacks_is_left_out() -> None:
    notified = Notified(None, "notifications/elicitation/complete", Raw(b"{}"))
    assert ready_server("2025-06-18").step(notified) == [Ignored("notification_of_another_date")]
    assert len(frames(ready_server("2025-11-25").step(notified))) == 1


# -- batches


def test_a_batch_is_answered_with_one_batch_when_its_last_call_is_done() -> None:
    peer = ready_server("2025-03-26")
    batch = (Request(1, "tools/call"), Notification("notifications/roots/list_changed"), Request(2, "no/such"))
    effects = peer.step(received((*batch, Request(3, "tools/list"))))
    one, three = (e for e in effects if hasattr(e, "request_id"))
    assert frames(effects) == []
    assert frames(peer.step(Finished(three.call, raw(3)))) == []
    (answers,) = frames(peer.step(Finished(one.call, raw(1))))
    assert isinstance(answers, tuple)
    assert [a.id for a in answers] == [2, 3, 1]


@pytest.mark.parametrize("date", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_other_dates_have_no_batches(date: str) -> None:
    peer = ready_server(date)
    effects = peer.step(received((Request(1, "tools/call"),), NamedLink("post", per_request=True)))
    assert [f.code for f in frames(effects)] == [INVALID_REQUEST]
    assert started(effects) == []


@pytest.mark.parametrize(
    "batch",
    [
        (Request(1, "initialize"),),
        (Request(1, "tools/call"), Response(1, {})),
    ],
)
def test_batches_with_initialize_or_mixed_with_responses_are_refused(batch: Any) -> None:
    peer = ready_server("2025-03-26")
    effects = peer.step(received(batch, NamedLink("post", per_request=True)))
    assert [f.code for f in frames(effects)] == [INVALID_REQUEST]


def test_a_broken_member_of_a_batch_is_answered_and_the_others_are_served() -> None:
    peer = ready_server("2025-03-26")
    fault = Malformed(RemoteProtocolError("bad", request_id=1))
    (start,) = peer.step(received((fault, Request(2, "tools/call"))))
    (answers,) = frames(peer.step(Finished(start.call, raw({}))))
    assert [a.id for a in answers] == [1, 2]


def test_one_id_twice_in_a_batch_is_served_once() -> None:
    peer = ready_server("2025-03-26")
    (start,) = peer.step(received((Request(1, "tools/call"), Request(1, "tools/call"))))
    (answers,) = frames(peer.step(Finished(start.call, raw({}))))
    assert sorted((a.id for a in answers), key=str) == [1, None]


def test_cancelling_one_of_a_batch_lets_the_others_leave() -> None:
    peer = ready_server("2025-03-26")
    one, _ = peer.step(received((Request(1, "tools/call"), Request(2, "tools/call"))))
    assert frames(peer.step(Finished(one.call, raw({})))) == []
    (answers,) = frames(peer.step(received(cancelled(2))))
    assert [a.id for a in answers] == [1]


@pytest.mark.parametrize("per_request", [True, False])
def test_a_batch_that_is_cancelled_whole_ends_its_own_link_but_never_a_pipe(per_request: bool) -> None:
    link = NamedLink("link", per_request=per_request)
    peer = ready_server("2025-03-26")
    peer.step(received((Request(1, "tools/call"),), link))
    effects = peer.step(received(cancelled(1), link))
    assert [e.link for e in effects if isinstance(e, End)] == ([link] if per_request else [])


# -- the end


def test_a_lost_link_stops_its_calls_and_no_others() -> None:
    post = NamedLink("post", per_request=True)
    peer = ready_server()
    mine, other = call(peer, 1, link=post), call(peer, 2)
    assert stopped(peer.step(LinkLost(post))) == [mine.call]
    assert len(frames(peer.step(Finished(other.call, raw({}))))) == 1


def test_a_call_whose_turn_comes_because_its_link_was_lost_never_begins() -> None:
    post = NamedLink("post", per_request=True)
    peer = ready_server(max_running=1)
    call(peer, 1, link=post)
    peer.step(received(Request(2, "tools/call"), post))
    assert started(peer.step(LinkLost(post))) == []
    assert peer.calls == 0


def test_draining_answers_what_runs_and_begins_nothing() -> None:
    peer = ready_server(max_running=1)
    running = call(peer, 1)
    peer.step(received(Request(2, "tools/call")))
    effects = peer.step(Drained(Cause.DRAIN))
    assert [(f.id, f.code) for f in frames(effects)] == [(1, INTERNAL_ERROR), (2, INTERNAL_ERROR)]
    assert started(effects) == []
    assert running.call in stopped(effects)
    assert peer.calls == 0


def test_hanging_up_stops_everything_settles_everything_and_answers_nothing() -> None:
    peer = ready_server(max_running=1)
    running = call(peer, 1)
    peer.step(received(Request(2, "tools/call")))
    peer.step(asked(running, "inside"))
    peer.step(asked(None, "outside", "roots/list"))
    effects = peer.step(HungUp(Cause.DISCONNECT))
    assert running.call in stopped(effects)
    assert sorted(reply for reply, _, _ in settled(effects)) == ["inside", "outside"]
    assert [f for f in frames(effects) if isinstance(f, Response | Error)] == []
    assert started(effects) == []
    assert effects[-1] == Close(Cause.DISCONNECT)
    assert peer.step(HungUp(Cause.SESSION_END)) == [Close(Cause.SESSION_END)]


def test_notifications_have_handlers_too_and_are_never_answered() -> None:
    peer = ready_server()
    peer.routes = frozenset({"notifications/roots/list_changed"})
    (start,) = peer.step(received(Notification("notifications/roots/list_changed"), PIPE))
    assert start.request_id is None
    assert frames(peer.step(Finished(start.call, raw({})))) == []
    assert peer.step(received(Notification("notifications/none/such"))) == [Ignored("unknown_notification")]
