"""The logging listener and the formatters: what stands in a line, and what can never stand there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio import telemetry
from mcptrio.telemetry.log import JsonFormatter, LogListener, TextFormatter, at_terminal, escape

SESSION = "abcdefgh-the-rest-is-secret"
CALL = "call ended session=abcdefgh request=7 method=tools/call"
Lines = list[logging.LogRecord]


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: Lines = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Terminal:
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
def logger(keeper: Keeper) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(keeper)
    yield logger
    logger.removeHandler(keeper)


def ended(outcome: str = "ok", method: str = "tools/call", request_id: Any = 7, **more: Any) -> Any:
    return telemetry.CallEnded(
        session=SESSION, call=1, request_id=request_id, method=method, outcome=outcome, seconds=0.25, **more
    )


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (
            telemetry.SessionOpened(session=SESSION, transport="http"),
            "INFO",
            "session opened session=abcdefgh transport=http",
        ),
        (
            telemetry.SessionClosed(session=SESSION, cause="disconnect", seconds=1.5),
            "INFO",
            "session closed session=abcdefgh cause=disconnect seconds=1.5",
        ),
        (ended(), "DEBUG", f"{CALL} outcome=ok seconds=0.25"),
        (ended("cancelled"), "DEBUG", f"{CALL} outcome=cancelled seconds=0.25"),
        (ended(name="add"), "INFO", f"{CALL} name=add outcome=ok seconds=0.25"),
        (ended("tool_error", name="add"), "INFO", f"{CALL} name=add outcome=tool_error seconds=0.25"),
        (
            ended("cancelled", name="add", cause="disconnected", queued=0.1, asking=0.05),
            "INFO",
            f"{CALL} name=add outcome=cancelled cause=disconnected seconds=0.25 queued=0.1 asking=0.05",
        ),
        (ended("overloaded", name="add"), "WARNING", f"{CALL} name=add outcome=overloaded seconds=0.25"),
        (ended(name="add", principal="ada"), "INFO", f"{CALL} name=add outcome=ok seconds=0.25"),
        (
            telemetry.RequestServed(client="::1:5", method="POST", path="/mcp", status=200, seconds=0.01),
            "INFO",
            "request served client=::1:5 method=POST path=/mcp status=200 seconds=0.01",
        ),
        (ended("error", code=-32603), "INFO", f"{CALL} outcome=error code=-32603 seconds=0.25"),
        (ended("timeout"), "WARNING", f"{CALL} outcome=timeout seconds=0.25"),
        (telemetry.LimitHit(name="waiting", session=SESSION), "WARNING", "limit hit session=abcdefgh name=waiting"),
        (telemetry.ReplayRefused(session=SESSION), "INFO", "resumption refused session=abcdefgh"),
        (telemetry.StreamOpened(session=SESSION, resumed=True), "DEBUG", "stream resumed session=abcdefgh"),
        (telemetry.Dropped(kind="late_notification"), "DEBUG", "message dropped kind=late_notification"),
        (telemetry.ConnectionEvent(kind="opened", detail="::1"), "DEBUG", "connection kind=opened detail=::1"),
    ],
)
def test_an_event_is_one_line(event: Any, level: str, text: str, logger: logging.Logger, keeper: Keeper) -> None:
    LogListener(logger)(event)
    (record,) = keeper.records
    assert (record.levelname, record.getMessage()) == (level, text)


@pytest.mark.parametrize(
    "event",
    [
        telemetry.GuardCaught(layer="session", error=ValueError("x"), session=SESSION),
        telemetry.Zombie(session=SESSION, method="tools/call", request_id=1),
    ],
)
def test_an_event_that_is_logged_at_its_source_is_not_logged_again(
    event: Any, logger: logging.Logger, keeper: Keeper
) -> None:
    """A cause appears in the log once."""
    listener = LogListener(logger)
    listener(event)
    assert keeper.records == []
    assert type(event) not in listener.hears


def test_a_flood_is_one_line_in_ten_seconds_and_the_next_one_counts_the_rest(
    logger: logging.Logger, keeper: Keeper
) -> None:
    clock = Clock()
    listener = LogListener(logger, clock=clock)
    for _ in range(1000):
        listener(telemetry.LimitHit(name="sessions"))
    listener(telemetry.LimitHit(name="streams"))
    clock.now += 10
    listener(telemetry.LimitHit(name="sessions"))
    assert [record.getMessage() for record in keeper.records] == [
        "limit hit name=sessions",
        "limit hit name=streams",
        "limit hit name=sessions left_out=999",
    ]


def test_principals_are_named_on_request_only(logger: logging.Logger, keeper: Keeper) -> None:
    listener = LogListener(logger, principals=True)
    assert telemetry.Hub([listener]).principals
    assert not telemetry.Hub([LogListener(logger)]).principals
    listener(ended(name="add", principal="ada"))
    assert keeper.records[0].getMessage().endswith("principal=ada")


def test_a_flood_of_overloaded_calls_is_one_line_in_ten_seconds(logger: logging.Logger, keeper: Keeper) -> None:
    listener = LogListener(logger, clock=Clock())
    for number in range(100):
        listener(ended("overloaded", name=f"evil{number}"))
    assert len(keeper.records) == 1


def test_colours_are_for_terminals_and_never_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.LogRecord("shop", logging.WARNING, "", 0, "red \x1b[31m", (), None)
    assert "\x1b" not in TextFormatter().format(record)
    coloured = TextFormatter(colours=True).format(record)
    assert "\x1b[33mWARNING\x1b[0m" in coloured
    assert coloured.endswith("red \\x1b[31m")
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert at_terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not at_terminal()


def test_nothing_is_built_for_a_level_that_is_off(logger: logging.Logger, keeper: Keeper) -> None:
    class Untouchable(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            raise AssertionError("built")

    logger.setLevel(logging.INFO)
    LogListener(logger)(telemetry.StreamOpened(session=Untouchable("x"), resumed=False))
    assert keeper.records == []


@given(text=st.text())
def test_an_escaped_text_is_printable_and_one_line(text: str) -> None:
    escaped = escape(text)
    assert escaped.isprintable()
    assert len(escaped.splitlines()) <= 1
    if text.isprintable() and len(text) <= 200:
        assert escaped == text


HOSTILE = "tools/\x00call\r\n2026-01-01 INFO forged \x1b[31m \u202e\u2028"


@pytest.mark.parametrize("make", [TextFormatter, JsonFormatter])
def test_nothing_of_the_peer_reaches_a_line_raw(
    make: Callable[[], logging.Formatter], logger: logging.Logger, keeper: Keeper
) -> None:
    """J22: a method, an id or an exception's text cannot forge a line or move the cursor of the reader's terminal."""
    listener = LogListener(logger)
    listener(ended("timeout", method=HOSTILE, request_id=HOSTILE))
    logger.warning("a message could not be read: %s", HOSTILE)
    for record in keeper.records:
        assert make().format(record).isprintable()


def test_a_traceback_in_text_is_indented_so_that_it_cannot_pose_as_a_record(
    logger: logging.Logger, keeper: Keeper
) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("tools/call failed")
    first, *rest = TextFormatter().format(keeper.records[0]).split("\n")
    assert first.endswith("tools/call failed")
    assert rest
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_a_json_line_has_the_fields_of_the_event_and_no_whole_session_id(
    logger: logging.Logger, keeper: Keeper
) -> None:
    LogListener(logger)(ended("timeout"))
    line = JsonFormatter().format(keeper.records[0])
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "test",
        "message": "call ended",
        "session": "abcdefgh",
        "request": 7,
        "method": "tools/call",
        "outcome": "timeout",
        "seconds": 0.25,
    }
    assert "secret" not in line


@pytest.mark.parametrize("make", [TextFormatter, JsonFormatter])
def test_log_records_of_a_handler_name_its_session_and_request(
    make: Callable[[], logging.Formatter], logger: logging.Logger, keeper: Keeper
) -> None:
    token = telemetry.current_call.set((SESSION, "re\nq"))
    try:
        logger.error("the database is gone")
        line = make().format(keeper.records[0])
    finally:
        telemetry.current_call.reset(token)
    assert "abcdefgh" in line
    assert "re\\" in line
    assert "secret" not in line
    assert "\n" not in line


def test_a_lone_surrogate_does_not_lose_the_line(logger: logging.Logger, keeper: Keeper) -> None:
    logger.propagate = False  # what pytest keeps of a log must be text that can be sent to another process
    logger.error("cannot open %s", "name-\udcff")
    logger.propagate = True
    assert "udcff" in json.loads(JsonFormatter().format(keeper.records[0]))["message"]
