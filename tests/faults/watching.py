"""A wire that follows every request to its outcome (I1), and every stream's events by their numbers (I5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import trio
from attrs import define, field

from mcptrio._wire.sse import SseReader
from tests.e2e.wires import Answer, Wire

Id = int | str


@define(eq=False)
class Request:
    """A request that was sent, and what became of it."""

    id: Id
    answers: set[str] = field(factory=set)
    """Each answer that came, by the id of its event: one that is read again is the same one."""
    closed: bool = False
    """Its connection ended, or was cut."""


@define(eq=False)
class WatchedAnswer:
    """The data of one connection, as it arrives."""

    inner: Answer
    watch: Watch
    session: str
    request: Request | None
    expected: int | None = None
    """The number of the next event; None where they have none."""
    _sse: SseReader = field(factory=SseReader)
    _plain: bytes = b""
    _stream: str = ""

    @property
    def status(self) -> int:
        return self.inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.inner.headers

    async def next(self) -> bytes | None:
        piece = await self.inner.next()
        if piece is None:
            self._close()
        elif not self.headers.get("content-type", "").startswith("text/event-stream"):
            self._plain += piece
        else:
            before = self._sse.last_event_id
            for event in self._sse.feed(piece):
                if event.data:
                    self._count(event.id)
                    self._take(json.loads(event.data), event.id or f"{id(self)}")
                elif event.id and event.id != before:
                    self._begin(event.id)
        return piece

    def cut(self) -> None:
        self.inner.cut()
        self._close()

    def _close(self) -> None:
        if self._plain:
            self._take(json.loads(self._plain), f"{id(self)}")
            self._plain = b""
        if self.request is not None:
            self.request.closed = True

    def _begin(self, event_id: str) -> None:
        """The event at the beginning of a stream, which says where to take it up."""
        self._stream, number, _ = event_id.split(".")
        if self.expected is None:
            assert number == "0", f"I5: a stream begins with {event_id}"
        self.expected = int(number) + 1

    def _count(self, event_id: str) -> None:
        if not event_id:
            assert self.expected is None, "I5: an event without an id on a stream that has ids"
            return
        stream, number, _ = event_id.split(".")
        assert self._stream in ("", stream), f"I5: an event of stream {stream} on stream {self._stream}"
        assert self.expected in (None, int(number)), f"I5: event {number} of stream {stream}, not {self.expected}"
        self._stream, self.expected = stream, int(number) + 1

    def _take(self, frame: Any, event: str) -> None:
        if not isinstance(frame, dict) or "method" in frame or frame.get("id") is None:
            return
        request = self.request
        if request is None:  # a stream that was taken up again
            request = self.watch.find(self.session, frame["id"], event)
        assert request.id == frame["id"], f"I1: an answer to {frame['id']} where {request.id} was asked"
        request.answers.add(event)


@define(eq=False)
class Watch:
    """Every request of one client."""

    requests: dict[str, list[Request]] = field(factory=dict)
    """By session."""
    open: list[WatchedAnswer] = field(factory=list)

    def find(self, session: str, request_id: Id, event: str) -> Request:
        mine = [request for request in self.requests.get(session, ()) if request.id == request_id]
        assert mine, f"I1: an answer to {request_id}, which was never asked"
        known = [request for request in mine if event in request.answers]
        free = [request for request in mine if not request.answers]
        return (known or free or mine)[-1]

    async def settle(self) -> None:
        """Every request has one outcome: an answer, or the end of its connection; never two."""
        for answer in self.open:
            if answer.request is not None and not answer.request.answers and not answer.request.closed:
                with trio.fail_after(30):  # it was never read: it must have an end all the same
                    while await answer.next() is not None:
                        pass
        for request in (request for requests in self.requests.values() for request in requests):
            assert len(request.answers) <= 1, f"I1: request {request.id} has {len(request.answers)} answers"
            assert request.answers or request.closed, f"I1: request {request.id} has no outcome"


@define(eq=False)
class WatchedWire:
    """Asks as another wire does, and watches."""

    inner: Wire
    watch: Watch = field(factory=Watch)

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> WatchedAnswer:
        session = headers.get("mcp-session-id", "")
        request = _request_in(body) if method == "POST" else None
        if request is not None:
            self.watch.requests.setdefault(session, []).append(request)
        inner = await self.inner.send(method, headers, body)
        cursor = headers.get("last-event-id", "")
        expected = int(cursor.split(".")[1]) + 1 if cursor.count(".") == 2 and inner.status == 200 else None
        answer = WatchedAnswer(inner, self.watch, session, request, expected)
        if request is not None:
            self.watch.open.append(answer)
        return answer

    def close(self) -> None:
        self.inner.close()


def _request_in(body: bytes) -> Request | None:
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError):
        return None
    asks = isinstance(frame, dict) and "method" in frame and isinstance(frame.get("id"), int | str)
    return Request(frame["id"]) if asks else None
