"""The framing table and the gate: what is refused, what is handed on, and that cuts do not matter."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcptrio.transports.http_server.listener.framing import FramingLimits, RawHead, Refusal, check_head
from mcptrio.transports.http_server.listener.gate import RawRequest, ReadPhase, RequestGate

LIMITS = FramingLimits()
WS = (
    "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def gate(max_body: int = 1000) -> RequestGate:
    return RequestGate(FramingLimits(max_body=max_body))


def run(data: bytes, cuts: list[int] | None = None) -> tuple[bytes, list[bytes | None], Refusal | None]:
    """Everything handed on, every head's target, and the refusal; each response ends as soon as its request does."""
    machine = gate()
    out, targets = b"", []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or ())})
    for start, end in pairwise(places):
        machine.feed(data[start:end])
        while True:
            step = machine.next()
            if isinstance(step, Refusal):
                return out, targets, step
            out += step
            if machine.phase is ReadPhase.BUSY:
                assert machine.head is not None
                targets.append(machine.head.target)
                machine.release()
            elif not step:
                break
    return out, targets, None


def refusal_of(text: str) -> Refusal | None:
    return run(text.encode("latin-1"))[2]


HOST = "Host: x\r\n"


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        pytest.param(
            f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, id="H21"
        ),
        pytest.param(
            f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400, id="H21b"
        ),
        pytest.param(f"POST / HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n", 400, id="H25"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, id="H22"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: +3\r\n\r\n", 400, id="H22 sign"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1_0\r\n\r\n", 400, id="H22 underscore"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: \r\n\r\n", 400, id="H22 empty"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: {'9' * 30}\r\n\r\n", 400, id="H22 huge"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n", 501, id="H24"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip\r\n\r\n", 400, id="TE not chunked"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, chunked\r\n\r\n", 400, id="TE twice"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked, gzip\r\n\r\n", 400, id="TE not last"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: \x0bchunked\r\n\r\n", 400, id="TE with control"),
        pytest.param(f"post / HTTP/1.1\r\n{HOST}\r\n", 405, id="H12"),
        pytest.param(f"CONNECT x:1 HTTP/1.1\r\n{HOST}\r\n", 405, id="CONNECT"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}{HOST}\r\n", 400, id="H05 two hosts"),
        pytest.param("GET / HTTP/1.1\r\n\r\n", 400, id="H05 no host"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}A: b\x00c\r\n\r\n", 400, id="H27 NUL"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}A : b\r\n\r\n", 400, id="H27 space before colon"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}A: b\rc\r\n\r\n", 400, id="bare CR"),
        pytest.param(f"GET / HTTP/1.1\r\n {HOST}\r\n", 400, id="fold without a line before"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}no colon\r\n\r\n", 400, id="no colon"),
        pytest.param(f"GET  / HTTP/1.1\r\n{HOST}\r\n", 400, id="two spaces"),
        pytest.param(f"GET /\x80 HTTP/1.1\r\n{HOST}\r\n", 400, id="target not ASCII"),
        pytest.param(f"GET x HTTP/1.1\r\n{HOST}\r\n", 400, id="target is no path"),
        pytest.param(f"GET * HTTP/1.1\r\n{HOST}\r\n", 400, id="asterisk is for OPTIONS"),
        pytest.param("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, id="H31 prior knowledge"),
        pytest.param("GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505, id="version"),
        pytest.param("\x16\x03\x01\x02\x00", 400, id="H29 TLS on the plain port"),
        pytest.param("\r\n\r\n\r\n", 400, id="empty lines"),
        pytest.param(f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413, id="H30"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}" + "A: b\r\n" * 100 + "\r\n", 431, id="too many headers"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}A: {'b' * 20_000}\r\n\r\n", 431, id="headers too large"),
        pytest.param(f"GET / HTTP/1.1\r\n{HOST}A: {'b' * 20_000}", 431, id="headers too large, unfinished"),
        pytest.param(f"GET /{'b' * 20_000}", 414, id="request line too long"),
        pytest.param(f"{WS}Sec-WebSocket-Protocol: caf\xe9\r\n\r\n", 400, id="K02 protocol"),
        pytest.param(f"{WS}Sec-WebSocket-Other: \xff\r\n\r\n", 400, id="K02 any"),
        pytest.param(f"{WS}Sec-WebSocket-Protocol: a,,b\r\n\r\n", 400, id="empty protocol"),
        pytest.param(f"{WS}Content-Length: 3\r\n\r\n", 400, id="handshake with a body"),
        pytest.param(f"{WS}Sec-WebSocket-Version: 12\r\n\r\n", 426, id="K04 version"),
        pytest.param(WS.replace("dGhl", "dGh") + "\r\n", 400, id="K04 key"),
        pytest.param(WS.partition("Sec-WebSocket-Key")[0] + "\r\n", 400, id="K04 no key"),
    ],
)
def test_a_request_that_breaks_the_framing_is_refused(request_text: str, code: int) -> None:
    refusal = refusal_of(request_text)
    assert refusal is not None
    assert refusal.status == code
    wire = refusal.encode()
    assert wire.startswith(b"HTTP/1.1 %d " % code)
    assert b"connection: close" in wire
    assert (b"allow:" in wire) == (code == 405)


@pytest.mark.parametrize(
    ("request_text", "handed_on"),
    [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"),
        ("GET / HTTP/1.1\nHost: x\nA:  b \n\n", b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n\r\n"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n  c\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\na: b c\r\n\r\n"),
        ("GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\nConnection: Upgrade\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\n\r\n",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nh\r\n1\r\ni\r\n0\r\nT: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ),
    ],
)
def test_a_valid_request_is_passed_on_in_normal_form(request_text: str, handed_on: bytes) -> None:
    assert run(request_text.encode())[0] == handed_on


@pytest.mark.parametrize(
    "body",
    [
        "x\r\n", "-1\r\n", "1\r\nab\r\n", "1\r\na\n0\r\n\r\n", "1 1\r\n", "123456789\r\n", "0x1\r\na\r\n", "\r\n",
        "1;" + "x" * 2000, "1\r\na" + "\r\r\n", "1\na\n0\n\n" + "x" * 1100, "0\r\n" + "T: x\r\n" * 3000,
    ],
)  # fmt: skip
def test_a_broken_chunk_is_passed_on_as_an_invalid_one(body: str) -> None:
    """h11 must not be left to understand a chunk in its own way: it is given bytes that cannot be taken for one."""
    out, targets, _ = run(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}".encode())
    assert out.endswith(b"\x00\r\n")
    assert targets == []


def test_a_body_that_is_mostly_chunk_framing_is_cut() -> None:
    machine = RequestGate(LIMITS)
    machine.feed(f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n".encode())
    machine.next()
    fed = 0
    while machine.phase is ReadPhase.BODY and fed < 1_000_000:
        machine.feed(b"1\r\nx\r\n" * 1000)
        machine.next()
        fed += 1000
    assert machine.phase is ReadPhase.REFUSED
    assert fed < 30_000


def test_a_pipelined_request_waits_for_the_response_before_it() -> None:
    machine = gate()
    machine.feed(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
    first = machine.next()
    assert isinstance(first, bytes)
    assert b"/1" in first
    assert b"/2" not in first
    assert machine.next() == b""
    assert machine.buffer
    machine.release()
    second = machine.next()
    assert isinstance(second, bytes)
    assert b"/2" in second


def test_bytes_after_a_websocket_handshake_wait_until_it_is_accepted() -> None:
    machine = gate()
    machine.feed(WS.encode() + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n" + b"frame")
    head = machine.next()
    assert isinstance(head, bytes)
    assert b"extensions" not in head.lower()
    assert b"upgrade: WebSocket" in head
    assert machine.next() == b""
    machine.switch()
    assert machine.next() == b"frame"
    machine.feed(b"more\r\n\r\n")
    assert machine.next() == b"more\r\n\r\n"


def test_held_bytes_are_bounded() -> None:
    machine = gate()
    machine.feed(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
    machine.next()
    assert machine.next() == b""
    machine.feed(b"x" * 64 * 1024)
    assert machine.next() is None


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a?b", b"/a?b"), (b"*", b"*"), (b"http://y/a?b", b"/a?b"), (b"http://y", b"/"), (b"HTTP://y?b/", b"/?b/"),
    ],
)  # fmt: skip
def test_an_absolute_target_has_a_path(target: bytes, path: bytes) -> None:
    assert RawHead(method=b"GET", target=target, version=b"1.1", headers=()).path == path


def test_check_head_can_be_used_without_the_gate() -> None:
    head = RawHead(method=b"GET", target=b"/", version=b"1.1", headers=((b"host", b"x"), (b"content-length", b"9")))
    assert check_head(head, LIMITS) is None
    assert check_head(head, FramingLimits(max_body=9)) is None
    refusal = check_head(head, FramingLimits(max_body=8))
    assert refusal is not None
    assert refusal.status == 413


# -- properties

_bodies = st.binary(max_size=40)
_paths = st.text("abc/%?=&", max_size=12)
_values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request as a client may write it."""
    head = f"{draw(st.sampled_from(['GET', 'POST', 'DELETE', 'M-SEARCH']))} /{draw(_paths)} HTTP/1.1\r\nHost: x\r\n"
    for value in draw(st.lists(_values, max_size=3)):
        head += f"X-Value:{value}\r\n"
    body = draw(_bodies)
    match draw(st.sampled_from(["length", "chunked", "none"])):
        case "length":
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        case "chunked":
            size = draw(st.integers(1, 7))
            parts = [body[at : at + size] for at in range(0, len(body), size)]
            chunks = b"".join(b"%X;e=1\r\n%b\r\n" % (len(part), part) for part in parts)
            return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode("latin-1") + chunks + b"0\r\n\r\n"
        case _:
            return f"{head}\r\n".encode("latin-1")


def read_with_h11(data: bytes) -> list[tuple[bytes, bytes]]:
    """The requests as h11 understands them: target and body."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
    connection.receive_data(data)
    seen: list[tuple[bytes, bytes]] = []
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            seen.append((event.target, b""))
        elif isinstance(event, h11.Data):
            seen[-1] = (seen[-1][0], seen[-1][1] + bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            connection.send(h11.Response(status_code=204, headers=[]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        else:
            return seen


@given(sent=st.lists(requests(), max_size=4), cuts=st.lists(st.integers(0, 2000), max_size=20))
def test_how_bytes_are_cut_does_not_matter(sent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(sent)
    whole, targets, refusal = run(data)
    pieces, targets_in_pieces, refusal_in_pieces = run(data, cuts)
    assert refusal is None
    assert refusal_in_pieces is None
    assert targets == targets_in_pieces
    # Chunk borders may differ; what they carry may not.
    assert read_with_h11(whole) == read_with_h11(pieces) == read_with_h11(data)


@given(sent=st.lists(requests(), min_size=1, max_size=3), at=st.integers(0, 2000), byte=st.integers(0, 255))
def test_h11_reads_the_output_of_the_gate_as_the_gate_did(sent: list[bytes], at: int, byte: int) -> None:
    """A damaged request is refused, or both parsers agree on it: no request hides in another one's body."""
    data = bytearray(b"".join(sent))
    data[at % len(data)] = byte
    assume(b"HTTP/1.0" not in data)  # ends the connection after one request, which `run` does not play
    out, targets, _ = run(bytes(data))
    try:
        seen = [target for target, _ in read_with_h11(out)]
    except h11.RemoteProtocolError:
        assert out.endswith(b"\x00\r\n")  # a broken chunk, made plain
        return
    assert seen[: len(targets)] == targets
    assert len(seen) <= len(targets) + 1  # the last one's body may be unfinished


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=10))
def test_garbage_never_raises(data: bytes, cuts: list[int]) -> None:
    run(data, cuts)


# -- a head that comes again


def post(length: bytes, body: bytes, more: bytes = b"") -> bytes:
    return b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\nX-Id: 17\r\n" + more + b"\r\n" + body


def served(first: bytes) -> RequestGate:
    machine = gate()
    machine.feed(first)
    assert isinstance(machine.next_request(), RawRequest)
    machine.release()
    return machine


def test_a_whole_request_with_the_last_head_is_taken_at_once() -> None:
    machine = served(post(b"2", b"{}"))
    request = machine.feed_whole(post(b"2", b"[]"))
    assert request is not None
    assert request.head is machine.head
    assert (request.body, machine.phase, machine.requests) == (b"[]", ReadPhase.BUSY, 2)


@pytest.mark.defect("S1")
@pytest.mark.parametrize("last", [b"", b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n", post(b"0", b"")])
def test_a_body_that_was_not_used_does_not_reach_the_next_request(last: bytes) -> None:
    machine = served(post(b"2", b"{}"))
    assert machine.feed_whole(post(b"2", b"[]")) is not None  # refused: its body is dropped with it
    machine.release()
    empty = machine.feed_whole(post(b"0", b""))
    assert empty is not None
    assert empty.body == b""
    machine.release()
    machine.feed(last)
    found = machine.next()
    assert isinstance(found, bytes)
    assert b"[]" not in found


@pytest.mark.parametrize("length", [b"17", b"0", b"007", b"1000"])
def test_the_length_of_a_head_that_comes_again_may_differ(length: bytes) -> None:
    machine = served(post(b"2", b"{}"))
    body = b"x" * int(length)
    request = machine.feed_whole(post(length, body))
    assert request is not None
    assert request.body == body
    slow = served(post(b"2", b"{}"))
    slow.feed(post(length, body))
    read = slow.next_request()
    assert isinstance(read, RawRequest)
    head, other = request.head, read.head
    assert (head.headers, head.fields, head.content_length) == (other.headers, other.fields, other.content_length)
    machine.release()
    again = machine.feed_whole(post(length, body))
    assert again is not None
    assert again.head is head  # it is the last one now


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(post(b"2", b"{"), id="the body is not all there"),
        pytest.param(post(b"2", b"{}G"), id="another request follows"),
        pytest.param(post(b"2", b"{}", b"X-More: 1\r\n"), id="another field"),
        pytest.param(post(b"-2", b"{}"), id="no number"),
        pytest.param(post(b"", b""), id="no digits"),
        pytest.param(post(b"2 ", b"{}"), id="a space"),
        pytest.param(post(b"1001", b"x" * 1001), id="more than is allowed"),
        pytest.param(post(b"0000002", b"{}"), id="many digits"),
        pytest.param(post(b"2", b"{}")[:30], id="a part of the head"),
    ],
)
def test_any_other_request_takes_the_full_parser(data: bytes) -> None:
    machine = served(post(b"2", b"{}"))
    assert machine.feed_whole(data) is None
    assert (machine.phase, machine.requests, machine.buffer) == (ReadPhase.IDLE, 1, b"")


@pytest.mark.parametrize(
    "first",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
        f"{WS}\r\n".encode(),
    ],
)
def test_a_head_with_chunks_expect_or_upgrade_takes_the_full_parser(first: bytes) -> None:
    machine = gate()
    machine.feed(first)
    machine.next()
    machine.release()
    assert machine.feed_whole(first) is None


def test_a_head_does_not_outgrow_its_limit_by_its_length() -> None:
    machine = gate()
    head = post(b"2", b"", b"X-Long: " + b"x" * (LIMITS.max_header_bytes - 75) + b"\r\n")
    padding = LIMITS.max_header_bytes - len(head)
    machine.feed(head.replace(b"x" * 50, b"x" * (50 + padding), 1) + b"{}")
    assert isinstance(machine.next_request(), RawRequest)
    machine.release()
    longer = head.replace(b"x" * 50, b"x" * (50 + padding), 1).replace(b"Length: 2", b"Length: 10")
    assert len(longer) == LIMITS.max_header_bytes + 1
    assert machine.feed_whole(longer + b"x" * 10) is None
    machine.feed(longer)
    refused = machine.next_request()
    assert isinstance(refused, Refusal)
    assert refused.status == 431
