"""Event ids: they come back as they went out, are valid in their own session only, and cannot be forged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcptrio.transports.http_server.endpoint.event_stream import EventIds, read_cursor

SECRET = bytes(range(32))
sessions = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
streams = st.integers(0, 10**12).map(str)
numbers = st.integers(0, 10**12)


@given(session=sessions, stream=streams, number=numbers)
def test_an_id_names_its_stream_and_its_place(session: str, stream: str, number: int) -> None:
    text = EventIds(SECRET, session, stream).of(number)
    assert read_cursor(text, secret=SECRET, session=session) == (stream, number)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 60


@given(session=sessions, other=sessions, stream=streams, number=numbers)
def test_an_event_id_is_invalid_in_another_session_or_with_another_secret(
    session: str, other: str, stream: str, number: int
) -> None:
    text = EventIds(SECRET, session, stream).of(number)
    if other != session:
        assert read_cursor(text, secret=SECRET, session=other) is None
    assert read_cursor(text, secret=bytes(32), session=session) is None


@given(session=sessions, stream=streams, number=numbers, position=st.integers(0, 60), character=st.characters())
def test_a_changed_id_is_refused(session: str, stream: str, number: int, position: int, character: str) -> None:
    text = EventIds(SECRET, session, stream).of(number)
    at = position % len(text)
    changed = text[:at] + character + text[at + 1 :]
    if changed != text:
        assert read_cursor(changed, secret=SECRET, session=session) is None


@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused_and_never_raises(text: str) -> None:
    assert read_cursor(text, secret=SECRET, session="s") is None


@given(a=st.tuples(sessions, streams), b=st.tuples(sessions, streams), number=numbers)
def test_two_streams_never_share_an_id(a: tuple[str, str], b: tuple[str, str], number: int) -> None:
    if a != b:
        assert EventIds(SECRET, *a).of(number) != EventIds(SECRET, *b).of(number)
