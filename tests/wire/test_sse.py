"""Server-sent events, written and read as the WHATWG standard says."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.sse import COMMENT, MAX_RETRY, ServerSentEvent, SseReader, encode_event
from mcptrio.errors import RemoteProtocolError


def event(data: str, event: str = "message", id: str = "") -> ServerSentEvent:
    return ServerSentEvent(data=data.encode(), event=event, id=id)


def read(pieces: list[bytes], max_event: int = 1000) -> tuple[list[ServerSentEvent], str | None, str, int | None]:
    """Events, the text of the error that ended them, last id, retry."""
    reader = SseReader(max_event)
    events: list[ServerSentEvent] = []
    failure = None
    try:
        for piece in pieces:
            events += reader.feed(piece)
        reader.eof()
    except RemoteProtocolError as error:
        failure = error.message
    return events, failure, reader.last_event_id, reader.retry


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [event("a")]),
        (b"data:a\n\ndata:  b\n\n", [event("a"), event(" b")]),
        (b"data: a\ndata\ndata: b\n\n", [event("a\n\nb")]),
        (b"data\n\n", [event("")]),
        (b"data: a:b\n\n", [event("a:b")]),
        (b"event: add\ndata: a\n\ndata: b\n\n", [event("a", "add"), event("b")]),
        (b"event: add\n\ndata: b\n\n", [event("b")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [event("a", id="1"), event("b", id="1")]),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [event("a", id="1"), event("b")]),
        (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [event("a", id="1"), event("b", id="1")]),
        (b": hello\n\n:\n:\xff\n\nwhat: ever\nDATA: x\n data: x\n\n", []),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\rdata: d\r\n\n", [event("a"), event("b"), event("c"), event("d")]),
        (b"data: a\rdata: b\ndata: c\r\n\n", [event("a\nb\nc")]),
        (b"\xef\xbb\xbfdata: a\n\n", [event("a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\ndata: b\n", [event("a")]),
        (b"data: a\n\ndata: b", [event("a")]),
        ("data: \u2028é\x0b\x1c\x85\n\n".encode(), [event("\u2028é\x0b\x1c\x85")]),
        (b"data: a\0b\n\n", [event("a\0b")]),
    ],
)
def test_events_are_found_in_one_piece_and_byte_by_byte(data: bytes, events: list[ServerSentEvent]) -> None:
    assert read([data])[:2] == (events, None)
    assert read([data[i : i + 1] for i in range(len(data))])[:2] == (events, None)


@pytest.mark.parametrize(
    ("data", "retry"),
    [
        (b"retry: 1500\n", 1500),
        (b"retry: 007\n", 7),
        (b"retry: 0\n", 0),
        (b"retry: 99999999999\n", MAX_RETRY),
        (b"retry: " + b"9" * 900 + b"\n", MAX_RETRY),
        (b"retry: " + b"0" * 900 + b"5\n", 5),
        (b"retry: abc\n", None),
        (b"retry: -1\n", None),
        (b"retry: 1.5\n", None),
        (b"retry:  1\n", None),
        (b"retry\n", None),
        ("retry: ١\n".encode(), None),
    ],
)
def test_retry_takes_digits_only(data: bytes, retry: int | None) -> None:
    assert read([data])[3] == retry


def test_an_id_counts_once_its_event_is_complete() -> None:
    reader = SseReader()
    reader.feed(b"id: 1\n\nid: 2\ndata: a\n")
    assert reader.last_event_id == "1"
    reader.feed(b"\n")
    assert reader.last_event_id == "2"


@pytest.mark.parametrize("field", [b"data", b"event", b"id"])
def test_invalid_utf8_ends_the_stream_after_the_events_before_it(field: bytes) -> None:
    data = b"data: a\n\n" + field + b": \xff\ndata: b\n\ndata: c\n\n"
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        events, failure, _, _ = read(pieces)
        assert events == [event("a")]
        assert failure is not None


@pytest.mark.parametrize(
    "data",
    [b"data: " + b"x" * 1001, b":" + b"x" * 1006 + b"\n", b"data: xxxxxxxxx\n" * 101, b"data\n" * 1002, b"x" * 1007],
)
def test_an_event_larger_than_the_bound_is_an_error(data: bytes) -> None:
    reader = SseReader(1000)
    with pytest.raises(RemoteProtocolError):
        reader.feed(data)
    with pytest.raises(RemoteProtocolError):
        reader.feed(b"\n\n")
    with pytest.raises(RemoteProtocolError):
        reader.eof()


def test_an_event_of_many_lines_and_endless_comments_are_read() -> None:
    reader = SseReader()
    assert reader.feed(b"data: x\n" * 10_000 + b"\n") == [event("\n".join(["x"] * 10_000))]
    for _ in range(1000):
        assert reader.feed(COMMENT + b": ping\n" * 10) == []


PARTS = [
    b"data",
    b"id",
    b"event",
    b"retry",
    b":",
    b": ",
    b" ",
    b"1",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xc3\xa9",
    b"\xff",
    b"\0",
    b"xxxxxxx",
]


@given(st.lists(st.sampled_from([*PARTS, b"data: a\n\n", b"\xef\xbb\xbf"])), st.lists(st.integers(0, 80)))
def test_how_bytes_are_cut_does_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    assert read(cut(data, cuts), 12) == read([data], 12)


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
LINE = TEXT.map(lambda text: text.replace("\r", "").replace("\n", "").replace("\0", ""))


@given(st.lists(st.tuples(TEXT, LINE, LINE, st.integers(0, 10**9))), st.lists(st.integers(0, 300)))
def test_written_events_are_read_back(written: list[tuple[str, str, str, int]], cuts: list[int]) -> None:
    data = b"".join(encode_event(data, event=name, id=id, retry=retry) + COMMENT for data, name, id, retry in written)
    expected = [
        event(data.replace("\r\n", "\n").replace("\r", "\n"), name or "message", id) for data, name, id, _ in written
    ]
    assert read(cut(data, cuts), 10_000) == (
        expected,
        None,
        written[-1][2] if written else "",
        written[-1][3] if written else None,
    )


def test_the_fields_are_written_in_order() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event("a\r\nb\rc\n", event="e", id="1", retry=5) == (
        b"event: e\nid: 1\nretry: 5\ndata: a\ndata: b\ndata: c\ndata: \n\n"
    )
    assert encode_event(None, retry=5) == b"retry: 5\n\n"
    assert encode_event("", id="1") == b"id: 1\ndata: \n\n"


@pytest.mark.parametrize("fields", [{"event": "a\nb"}, {"event": "\r"}, {"id": "a\nb"}, {"id": "\0"}, {"retry": -1}])
def test_fields_that_would_break_the_stream_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        encode_event("x", **fields)  # type: ignore[arg-type]  # one wrong field at a time
