"""Lines come out whole, whatever way the bytes come in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.lines import LineReader, LineTooLong


def read(pieces: list[bytes], max_line: int = 100) -> list[bytes | LineTooLong]:
    reader = LineReader(max_line)
    found = [line for piece in pieces for line in reader.feed(piece)]
    return found + reader.eof()


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


TOO_LONG = LineTooLong(limit=5)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\n\r\n  \t\r\na\n\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r", [b"a"]),
        (b"a\rb\n", [b"a\rb"]),
        (b" a \n", [b" a "]),
        (b"12345\n", [b"12345"]),
        (b"123456\na\n", [TOO_LONG, b"a"]),
        (b"a\n123456789012\n\n123456", [b"a", TOO_LONG, TOO_LONG]),
        (b"\xff\xfe\n", [b"\xff\xfe"]),
    ],
)
def test_lines_are_found_in_one_piece_and_byte_by_byte(data: bytes, lines: list[bytes | LineTooLong]) -> None:
    assert read([data], 5) == lines
    assert read([data[i : i + 1] for i in range(len(data))], 5) == lines


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b" ", b"xxxxxxx"])), st.lists(st.integers(0, 60)))
def test_how_bytes_are_cut_does_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    expected: list[bytes | LineTooLong] = []
    for line in data.split(b"\n"):
        if len(line) > 5:
            expected.append(TOO_LONG)
        elif line.strip():
            expected.append(line.removesuffix(b"\r"))
    assert read(cut(data, cuts), 5) == expected


def test_a_line_without_end_is_reported_at_once_and_costs_no_memory() -> None:
    reader = LineReader(1000)
    reported = [item for _ in range(1000) for item in reader.feed(b"x" * 100)]
    assert reported == [LineTooLong(limit=1000)]
    assert reader.feed(b"tail\n{}\n") == [b"{}"]


def test_a_reader_may_go_on_after_the_end() -> None:
    reader = LineReader()
    assert reader.feed(b"rest") == []
    assert reader.eof() == [b"rest"]
    assert reader.eof() == []


def test_lines_are_bytes_whatever_the_stream_gives() -> None:
    found = LineReader().feed(bytearray(b"one\ntwo\r\nthr"))
    assert found == [b"one", b"two"]
    assert {type(line) for line in found} == {bytes}
