"""One retry policy: counts, pauses, and what a status means, for everything that a client repeats."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from mcptrio import Client, ConnectionLost, Overloaded, Reconnect, connect
from mcptrio.transports.http_client import HttpClientConfig
from mcptrio.transports.http_status import meaning_of, retry_after
from mcptrio.transports.retry import LASTED, Retries
from tests.client.kit import BOTH
from tests.transports.scripted_http import URL, Answer, Asked, Web, event, result, stateful, stateless

OLD, NEW = BOTH
LATER = [429, 502, 503, 504]
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
TOLD = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def to(web: Web, **options: Any) -> Client:
    return connect(URL, http_client=web.client(), **{"protocol": OLD, **options})


# -- the policy


def test_only_failures_in_a_row_count() -> None:
    retries, error = Retries(Reconnect(tries=2)), ConnectionLost("gone")
    for _ in range(10):
        retries.failed(error)
        retries.failed(error)
        assert retries.answered(0.0, delivered=True)
    retries.failed(error)
    retries.failed(error)
    with pytest.raises(ConnectionLost):
        retries.failed(error)


@pytest.mark.parametrize(("seconds", "delivered", "good"), [(0, False, False), (0, True, True), (LASTED, False, True)])
def test_a_connection_is_good_if_it_lasted_or_delivered_something(seconds: float, delivered: bool, good: bool) -> None:
    retries = Retries(Reconnect(tries=1))
    retries.failed(ConnectionLost("gone"))
    assert retries.answered(seconds, delivered=delivered) is good
    assert retries.failures == (0 if good else 1)


async def test_the_pause_is_the_longest_of_what_the_policy_and_the_server_want(autojump_clock: MockClock) -> None:
    async def pause(retries: Retries, *args: Any, **asked: Any) -> float:
        began = trio.current_time()
        await retries.pause(*args, **asked)
        return trio.current_time() - began

    policy = Reconnect(tries=5, first=1, most=10)
    assert 0.5 <= await pause(Retries(policy)) <= 1
    assert await pause(Retries(policy), Overloaded("busy", retry_after=7)) == pytest.approx(7)
    assert await pause(Retries(policy), Overloaded("busy", retry_after=700)) == pytest.approx(10)
    assert await pause(Retries(policy), asked=0.1) == pytest.approx(0.1)
    failing = Retries(policy)
    failing.failed(ConnectionLost("gone"))
    assert await pause(failing, ConnectionLost("gone"), asked=0.1) >= 0.5


def test_the_table_of_statuses() -> None:
    assert [status for status in range(400, 600) if meaning_of(status).retry] == LATER
    assert [status for status in range(400, 600) if meaning_of(status).sign_in] == [401, 403]
    assert [status for status in range(400, 600) if meaning_of(status).no_session] == [404]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0), ("", 0), ("7", 7), (" 7 ", 7), ("-7", 0), ("7.5", 0), ("٣", 0), ("9" * 30, 10**6), ("soon", 0),
        ("Tue, 17 Nov 2026 12:00:30 GMT", 30), ("Tue, 17 Nov 2026 11:00:00 GMT", 0), ("Tue, 17 Nov 2026 12:00:30", 30),
        ("Tue, 17 Nov 99999999999 12:00:00 GMT", 0), ("Tue, 17 Nov 2026 12:00:00 +99999999999999999", 0),
    ],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: int) -> None:
    assert retry_after(header, datetime(2026, 11, 17, 12, tzinfo=UTC)) == seconds


# -- calls


@pytest.mark.defect("E22")
@pytest.mark.parametrize("status", LATER)
@pytest.mark.parametrize("date", BOTH)
async def test_a_list_is_asked_for_again_after_a_status_that_passes(
    date: str, status: int, autojump_clock: MockClock
) -> None:
    left = 3

    def handle(asked: Asked) -> Answer:
        nonlocal left
        left -= 1
        return Answer(200, result(asked, tools=[])) if left < 0 else Answer(status, b"", {"retry-after": "5"})

    web = Web((stateful if date == OLD else stateless)(date, handle))
    async with to(web, protocol=date) as client:
        began = trio.current_time()
        assert await client.list_tools() == ()
        assert trio.current_time() - began == pytest.approx(15, abs=1)


@pytest.mark.parametrize("status", LATER)
async def test_a_call_that_may_have_run_is_not_repeated(status: int, autojump_clock: MockClock) -> None:
    web = Web(stateful(OLD, lambda _: Answer(status)))
    async with to(web) as client:
        with pytest.raises(Overloaded) as caught:
            await client.call_tool("pay")
    assert caught.value.http_status == status
    assert len(web.of("tools/call")) == 1


async def test_a_busy_server_that_answers_in_json_is_busy_all_the_same(autojump_clock: MockClock) -> None:
    left = 1

    def handle(asked: Asked) -> Answer:
        nonlocal left
        left -= 1
        if left < 0:
            return Answer(200, result(asked, tools=[]))
        error = {"code": -32603, "message": "too many calls"}
        return Answer(503, {"jsonrpc": "2.0", "id": asked.frame["id"], "error": error})

    async with to(Web(stateful(OLD, handle))) as client:
        assert await client.list_tools() == ()
        left = 1
        with pytest.raises(Overloaded, match="HTTP 503: too many calls"):
            await client.call_tool("pay")


@pytest.mark.parametrize("date", BOTH)
async def test_the_first_connection_to_an_unknown_server_is_not_retried(date: str, autojump_clock: MockClock) -> None:
    web = Web(lambda _: Answer(502))
    with pytest.raises(Overloaded):
        async with to(web, protocol=date):
            pass
    assert len(web.asked) == 1


@pytest.mark.defect("E22")
@pytest.mark.parametrize("status", LATER)
async def test_a_session_is_opened_again_through_statuses_that_pass(status: int, autojump_clock: MockClock) -> None:
    outage = 0

    def handle(asked: Asked) -> Answer:
        nonlocal outage
        if not outage and asked.headers.get("mcp-session-id") == "s-1":
            outage = 4
            return Answer(404)
        return Answer(200, result(asked, **DONE))

    def shell(asked: Asked) -> Any:
        nonlocal outage
        if asked.rpc == "initialize" and outage > 1:
            outage -= 1
            return Answer(status, b"", {"retry-after": "2"})
        return stateful(OLD, handle, session=f"s-{len(web.of('initialize'))}")(asked)

    web = Web(shell)
    async with to(web) as client:
        assert (await client.call_tool("t")).content
    assert len(web.of("initialize")) == 5


# -- the stream of a call


@pytest.mark.defect("E18")
@pytest.mark.parametrize("status", LATER)
async def test_a_call_is_resumed_through_statuses_that_pass(status: int, autojump_clock: MockClock) -> None:
    calls: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1"), httpx2.ReadError("reset")])
        if len(calls) < 5:
            return Answer(status, b"", {"retry-after": "4"})
        return Answer(200, [event(result(calls[0], **DONE), id="e2")])

    async with to(Web(stateful(OLD, handle))) as client:
        assert (await client.call_tool("t")).content
    assert [one.headers["last-event-id"] for one in calls[1:]] == ["e1"] * 4
    pauses = [after.at - before.at for before, after in itertools.pairwise(calls[1:])]
    assert pauses == pytest.approx([4] * 3, abs=0.1)


@pytest.mark.defect("E18")
async def test_a_call_is_resumed_although_the_server_still_holds_the_previous_connection(
    autojump_clock: MockClock,
) -> None:
    calls: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1"), httpx2.ReadError("reset")])
        return Answer(409) if len(calls) < 5 else Answer(200, [event(result(calls[0], **DONE), id="e2")])

    async with to(Web(stateful(OLD, handle))) as client:
        assert (await client.call_tool("t")).content
    assert len(calls) == 5


@pytest.mark.defect("E21")
@pytest.mark.parametrize("field", [b"", b"retry: 1000\n\n", b": still working\n\n"])
async def test_a_polled_call_is_not_given_up_after_good_connections(field: bytes, autojump_clock: MockClock) -> None:
    calls: list[Asked] = []

    async def idle(asked: Asked) -> AsyncIterator[bytes]:
        await trio.sleep(LASTED if not field else 0.1)
        if field:
            yield field

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1", retry=1000)])
        if len(calls) < 30:
            return Answer(200, idle(asked), {"content-type": "text/event-stream"})
        return Answer(200, [event(result(calls[0], **DONE), id="e2")])

    async with to(Web(stateful(OLD, handle)), timeout=900) as client:
        assert (await client.call_tool("t")).content
    assert len(calls) == 30


async def test_a_call_whose_stream_always_ends_at_once_without_a_byte_is_given_up(autojump_clock: MockClock) -> None:
    polls = 0

    def handle(asked: Asked) -> Answer:
        nonlocal polls
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1")])
        polls += 1
        return Answer(200, b"", {"content-type": "text/event-stream"})

    async with to(Web(stateful(OLD, handle)), reconnect=Reconnect(tries=4), timeout=900) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("t")
    assert polls == 5


# -- the server's own stream


def with_stream(on_get: Any) -> Web:
    """A stateful server that answers GET with `on_get(number)` and everything else with an empty list."""
    gets = itertools.count()

    def handle(asked: Asked) -> Any:
        if asked.method == "GET":
            return on_get(next(gets))
        return shell(asked)

    shell = stateful(OLD, lambda asked: Answer(200, result(asked, tools=[])))
    return Web(handle)


async def heard(web: Web, **options: Any) -> None:
    """Wait until the server's own stream delivers something."""
    news = trio.Event()
    async with to(web, on_notification=lambda *_: news.set(), **options):
        with trio.fail_after(10_000):
            await news.wait()


@pytest.mark.defect("E19")
@pytest.mark.parametrize("status", [*LATER, 409])
async def test_the_servers_own_stream_is_opened_through_statuses_that_pass(
    status: int, autojump_clock: MockClock
) -> None:
    await heard(with_stream(lambda n: Answer(status) if n < 5 else Answer(200, [event(TOLD), 1e9])))


@pytest.mark.defect("E20")
@pytest.mark.parametrize("ending", [[], [httpx2.ReadError("cut")]])
async def test_an_idle_stream_that_a_proxy_cuts_is_opened_again_as_often_as_needed(
    ending: list[Any], autojump_clock: MockClock
) -> None:
    web = with_stream(lambda n: Answer(200, [60.0, *ending]) if n < 40 else Answer(200, [event(TOLD), 1e9]))
    await heard(web)
    times = [one.at for one in web.asked if one.method == "GET"]
    assert max(after - before for before, after in itertools.pairwise(times)) < 61


async def test_a_stream_that_always_ends_at_once_is_asked_for_less_and_less_often(autojump_clock: MockClock) -> None:
    web = with_stream(lambda _: Answer(200, [b":\n\n"]))
    async with to(web, reconnect=Reconnect(tries=3, first=0.2, most=30)):
        await trio.sleep(600)
    assert 20 <= len([one for one in web.asked if one.method == "GET"]) <= 60


async def test_a_stream_that_was_given_up_is_opened_again_when_the_server_answers(autojump_clock: MockClock) -> None:
    up = False
    web = with_stream(lambda _: Answer(200, [event(TOLD), 1e9]) if up else Answer(502))
    news = trio.Event()
    async with to(web, reconnect=Reconnect(tries=2), on_notification=lambda *_: news.set()) as client:
        await trio.sleep(600)
        assert len([one for one in web.asked if one.method == "GET"]) == 3
        up = True
        await client.list_tools()
        with trio.fail_after(10):
            await news.wait()


# -- subscriptions


@pytest.mark.defect("E23")
@pytest.mark.parametrize("status", LATER)
async def test_a_subscription_survives_statuses_that_pass(status: int, autojump_clock: MockClock) -> None:
    listens = 0

    def handle(asked: Asked) -> Answer:
        nonlocal listens
        listens += 1
        if listens in (2, 3, 4):
            return Answer(status, b"", {"retry-after": "3"})
        number = asked.frame["id"]
        meta = {"io.modelcontextprotocol/subscriptionId": number}
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        received = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        return Answer(200, [event(received), 30.0 if listens == 1 else 1e9, httpx2.ReadError("cut")])

    web = Web(stateless(NEW, handle))
    async with to(web, protocol=NEW) as client, client.listen(tools=True) as changes:
        with trio.fail_after(120):
            assert (await anext(changes)).kind == "tools"
        await trio.sleep(60)
    assert listens == 5


# -- answers to the server


@pytest.mark.defect("C19")
@pytest.mark.parametrize("trouble", [502, httpx2.ReadError("reset"), httpx2.ConnectError("refused")])
async def test_the_answer_of_a_user_is_posted_again(trouble: Any, autojump_clock: MockClock) -> None:
    answered = trio.Event()
    question = {
        "jsonrpc": "2.0",
        "id": "q1",
        "method": "elicitation/create",
        "params": {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
    }
    posts = 0

    async def ask(asked: Asked) -> AsyncIterator[bytes]:
        yield event(question)
        await answered.wait()
        yield event(result(asked, **DONE))

    def handle(asked: Asked) -> Answer:
        nonlocal posts
        if asked.rpc == "tools/call":
            return Answer(200, ask(asked), {"content-type": "text/event-stream"})
        assert asked.frame["id"] == "q1"
        posts += 1
        if posts < 3:
            if isinstance(trouble, Exception):
                raise trouble
            return Answer(trouble)
        answered.set()
        return Answer(202)

    async with to(Web(stateful(OLD, handle)), elicit=lambda _: {}) as client:
        with trio.fail_after(30):
            assert (await client.call_tool("t")).content
    assert posts == 3


async def test_a_session_that_is_gone_gets_no_answer_again(autojump_clock: MockClock) -> None:
    question = {"jsonrpc": "2.0", "id": "q1", "method": "roots/list"}
    posts = 0

    def handle(asked: Asked) -> Answer:
        nonlocal posts
        if asked.rpc == "tools/call":
            return Answer(200, [event(question), 1e9])
        posts += 1
        return Answer(404)

    async with to(Web(stateful(OLD, handle)), roots=["file:///a"], reconnect=Reconnect(tries=0)) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("t")
    assert posts == 1


# -- sizes and ids


@pytest.mark.defect("E17")
@pytest.mark.parametrize("more", [0, 1])
async def test_one_limit_for_an_answer_as_json_or_in_a_stream(more: int) -> None:
    limit = 20_000
    outcomes: list[str] = []
    for as_stream in (False, True):

        def handle(asked: Asked, as_stream: bool = as_stream) -> Answer:
            empty = json.dumps(result(asked, content=[], pad=""))
            body = json.dumps(result(asked, content=[], pad="x" * (limit + more - len(empty)))).encode()
            assert len(body) == limit + more
            if as_stream:
                return Answer(200, [b"data: " + body + b"\n\n"])
            return Answer(200, body, {"content-type": "application/json"})

        async with to(Web(stateful(OLD, handle)), http=HttpClientConfig(max_reply=limit)) as client:
            try:
                await client.call_tool("t")
                outcomes.append("answered")
            except Exception as error:
                outcomes.append(type(error).__name__)
    assert outcomes == ["answered" if not more else "RemoteProtocolError"] * 2


@pytest.mark.defect("E25")
async def test_an_event_id_that_is_not_ascii_is_sent_back_as_utf_8(autojump_clock: MockClock) -> None:
    calls: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, ["id: ereignis-é-✓\ndata:\n\n".encode()])
        return Answer(200, [event(result(calls[0], **DONE), id="e2")])

    async with to(Web(stateful(OLD, handle))) as client:
        assert (await client.call_tool("t")).content
    assert calls[1].headers["last-event-id"] == "ereignis-é-✓"


@pytest.mark.defect("E25")
@pytest.mark.parametrize("number", ["a\x01b", " a", "a ", "\x7f"])
async def test_an_event_id_that_no_header_can_hold_is_not_sent(number: str, autojump_clock: MockClock) -> None:
    gets: list[Asked] = []

    def on_get(_: int) -> Answer:
        gets.append(web.asked[-1])
        return Answer(200, [f"id: {number}\n".encode() + event(TOLD), *([1e9] if len(gets) > 2 else [])])

    web = with_stream(on_get)
    async with to(web) as client:
        await trio.sleep(60)
        assert await client.list_tools() == ()
    sent = [one.headers.get("last-event-id") for one in gets]
    # The field's own space is no part of the value, a second one is.
    assert sent == [None] * 3


@pytest.mark.defect("E25")
async def test_no_exception_leaves_the_reader_of_the_servers_own_stream(autojump_clock: MockClock) -> None:
    def on_get(number: int) -> Answer:
        if number == 0:
            return Answer(200, [b"data: {no json\n\n", b'data: {"jsonrpc": "2.0", "id": 7}\n\n', event(TOLD), 1.0])
        raise RuntimeError("a defect of an authorization")

    received: list[str] = []
    async with to(with_stream(on_get), on_notification=lambda method, _: received.append(method)) as client:
        await trio.sleep(60)
        assert await client.list_tools() == ()
    assert received == [TOLD["method"]]
