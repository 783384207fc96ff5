"""The logging listener, and formatters for programs that own their process.

Text chosen by a peer is never logged raw: control characters and line ends are escaped and long texts are truncated. A
session id grants access to the session, so only its first eight characters are logged.

Events that are logged with a traceback where they happen (`GuardCaught`, `Zombie`, `StoreChanged`, the stack of a
blocked event loop) are not logged again by the listener.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mcptrio import telemetry
from mcptrio.telemetry import current_call

_LONGEST: Final = 200
_EVERY: Final = 10.0
_MAX_KEYS: Final = 100
_WARNED: Final = frozenset({"timeout", "overloaded"})
_COLOURS: Final = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
"""Of levels at a terminal (SGR codes)."""
_TOLD_WITH_THE_CALL: Final = {"call_timeout", "call_timeout_hard"}
_FLOODS: Final = {"refused", "request_refused", "write_timeout", "not_read", "handshake_failed", "accept_failed"}


def escape(text: object, limit: int = _LONGEST) -> str:
    """Return `text` on one line: unprintable characters are escaped, and a long text is truncated."""
    text = str(text)
    if len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


class LogListener:
    """A listener that logs events, one line each, at a suitable level.

    With `principals` the lines of calls name the key of the caller. `clock` is for tests.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        principals: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger or logging.getLogger("mcptrio.events")
        self.principals = principals
        self._clock = clock
        self._floods: dict[str, tuple[float, int]] = {}
        self.hears: dict[type[telemetry.Event], Callable[[Any], None]] = {
            telemetry.SessionOpened: self._session_opened,
            telemetry.SessionClosed: self._session_closed,
            telemetry.CallEnded: self._call_ended,
            telemetry.AskEnded: self._ask_ended,
            telemetry.StreamOpened: self._stream_opened,
            telemetry.StreamClosed: self._stream_closed,
            telemetry.ReplayRefused: self._replay_refused,
            telemetry.LimitHit: self._limit_hit,
            telemetry.Dropped: self._dropped,
            telemetry.LoopStalled: self._loop_stalled,
            telemetry.ConnectionEvent: self._connection,
            telemetry.RequestServed: self._request_served,
        }

    def __call__(self, event: telemetry.Event) -> None:
        write = self.hears.get(type(event))
        if write is not None:
            write(event)

    # -- one method per event class; each checks the level before it builds anything

    def _session_opened(self, event: telemetry.SessionOpened) -> None:
        self._write(logging.INFO, "session opened", event.session, transport=event.transport)

    def _session_closed(self, event: telemetry.SessionClosed) -> None:
        self._write(logging.INFO, "session closed", event.session, cause=event.cause, seconds=event.seconds)

    def _call_ended(self, event: telemetry.CallEnded) -> None:
        outcome = event.outcome
        # Calls of tools, prompts and resources are what a server is for; lists and pings come all the time.
        usual = event.name is None and outcome in ("ok", "cancelled")
        level = logging.DEBUG if usual else logging.WARNING if outcome in _WARNED else logging.INFO
        if not self._logger.isEnabledFor(level):
            return
        fields: dict[str, Any] = {"request": event.request_id, "method": event.method, "name": event.name}
        fields |= {"outcome": outcome, "cause": event.cause, "code": event.code, "seconds": event.seconds}
        fields |= {"queued": event.queued or None, "asking": event.asking or None}
        if self.principals:
            fields["principal"] = event.principal
        if outcome == "overloaded":  # a client that repeats refused requests must not fill the disk
            self._write_some(level, "call ended", event.session, f"overloaded {event.entry}", **fields)
        else:
            self._write(level, "call ended", event.session, **fields)

    def _ask_ended(self, event: telemetry.AskEnded) -> None:
        level = logging.INFO if event.outcome == "timeout" else logging.DEBUG
        self._write(
            level, "ask ended", event.session, method=event.method, outcome=event.outcome, seconds=event.seconds
        )

    def _stream_opened(self, event: telemetry.StreamOpened) -> None:
        self._write(logging.DEBUG, "stream resumed" if event.resumed else "stream opened", event.session)

    def _stream_closed(self, event: telemetry.StreamClosed) -> None:
        self._write(logging.DEBUG, "stream closed", event.session, cause=event.cause)

    def _replay_refused(self, event: telemetry.ReplayRefused) -> None:
        self._write(logging.INFO, "resumption refused", event.session)

    def _limit_hit(self, event: telemetry.LimitHit) -> None:
        if event.name in _TOLD_WITH_THE_CALL:
            return
        self._write_some(logging.WARNING, "limit hit", event.session, event.name, name=event.name)

    def _dropped(self, event: telemetry.Dropped) -> None:
        self._write(logging.DEBUG, "message dropped", event.session, kind=event.kind)

    def _loop_stalled(self, event: telemetry.LoopStalled) -> None:
        self._write(logging.INFO, "event loop turns again", None, seconds=event.seconds, culprit=event.culprit)

    def _connection(self, event: telemetry.ConnectionEvent) -> None:
        if event.kind in _FLOODS:
            key = self._refusal_key(event.detail) if event.kind == "request_refused" else event.kind
            fields = {"kind": event.kind, "client": event.client, "detail": event.detail}
            self._write_some(logging.INFO, "connection", None, key, **fields)
        else:
            self._write(logging.DEBUG, "connection", None, kind=event.kind, detail=event.detail)

    def _request_served(self, event: telemetry.RequestServed) -> None:
        fields: dict[str, Any] = {"client": event.client, "method": event.method, "path": event.path}
        fields |= {"status": event.status, "seconds": event.seconds}
        if self.principals:
            fields["principal"] = event.principal
        self._write(logging.INFO, "request served", None, **fields)

    # -- lines

    def _refusal_key(self, detail: str) -> str:
        """Return what refusals are counted by, so that many of one kind do not hide the others: the status.

        Of credentials also the reason, because most clients try without a token first.
        """
        key = f"request_refused {detail[:3]}"
        # A program's own `auth=` function may write what its clients choose.
        if detail.startswith("401") and len(self._floods) < _MAX_KEYS:
            key += detail.partition(": ")[2].partition(": ")[0]
        return key

    def _write_some(self, level: int, what: str, session: str | None, key: str, **fields: Any) -> None:
        """Write at most one line per key in ten seconds; the next one says how many were left out."""
        now = self._clock()
        last, left_out = self._floods.get(key, (-_EVERY, 0))
        if now - last < _EVERY:
            self._floods[key] = (last, left_out + 1)
            return
        self._floods[key] = (now, 0)
        if left_out:
            fields["left_out"] = left_out
        self._write(level, what, session, **fields)

    def _write(self, level: int, what: str, session: str | None, **fields: Any) -> None:
        if not self._logger.isEnabledFor(level):
            return
        known: dict[str, Any] = {} if session is None else {"session": session[:8]}
        for name, value in fields.items():
            if value is None or value == "":
                continue
            known[name] = round(value, 4) if type(value) is float else value if type(value) is int else escape(value)
        text = " ".join(f"{name}={_quoted(value)}" for name, value in known.items())
        self._logger.log(level, "%s %s", what, text, extra={"mcptrio_event": what, "mcptrio_fields": known})


def _quoted(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if " " in text or '"' in text or not text else text


# -- formatters, for the program that owns the process


class TextFormatter(logging.Formatter):
    """Formatter for people: one line per record, then its traceback, indented, so that no text can imitate a record.

    With `colours`, levels other than INFO are coloured, and the time and the logger are dim.
    """

    def __init__(self, *, colours: bool = False) -> None:
        level = "%(mcptrio_level)s" if colours else "%(levelname)-7s"
        dim, plain = ("\x1b[2m", "\x1b[0m") if colours else ("", "")
        super().__init__(f"{dim}%(asctime)s{plain} {level} {dim}%(name)s:{plain} %(message)s")
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's formatter may have cached unescaped text there
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name is logging's
        record.message = escape(record.message, 4000)
        if self._colours:
            colour, level = _COLOURS.get(record.levelname), f"{record.levelname:7}"
            record.mcptrio_level = level if colour is None else f"\x1b[{colour}m{level}\x1b[0m"
        text = super().formatMessage(record)
        for name, value in _call_ids(record).items():
            text += f" {name}={_quoted(value)}"
        return text

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """Formatter for machines: one JSON object per line, with the fields of an event next to its message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": getattr(record, "mcptrio_event", None) or escape(record.getMessage(), 4000),
            **_call_ids(record),
            **getattr(record, "mcptrio_fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        # A lone surrogate (from a file name, for example) has no UTF-8; escape it instead of losing the line.
        return msgspec.json.encode(_writable(line)).decode()


_process_fields: Final[dict[str, str]] = {}
"""Fields of every line of this process."""


def name_worker(slot: int, worker_id: str) -> None:
    """Name the worker in every line that this process logs."""
    _process_fields.update(worker=str(slot), worker_id=worker_id)


def _call_ids(record: logging.LogRecord) -> dict[str, Any]:
    """Return the worker, and the session and request id of the handler that wrote the record or raised."""
    call = current_call.get()
    ids: dict[str, Any] = dict(_process_fields)
    if call is None or hasattr(record, "mcptrio_fields"):
        return ids
    session, request = call
    ids["session"] = session[:8]
    if request is not None:
        ids["request"] = request if type(request) is int else escape(request)
    return ids


def _writable(line: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value
        for name, value in line.items()
    }


def _indented(text: str) -> str:
    return "\n".join("    " + escape(line, 4000) for line in text.splitlines())


def at_terminal() -> bool:
    """Return whether stderr shows colours (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stderr is not None and sys.stderr.isatty()


def set_up_logging(level: str, style: str) -> None:
    """Log to stderr, because stdout carries the messages of a stdio server. For the program that owns the process."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(colours=at_terminal()))
    logging.basicConfig(level=level.upper(), handlers=[handler])
