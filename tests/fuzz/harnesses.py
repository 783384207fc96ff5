"""Fuzz targets: six codecs, each as a function of bytes that raises only when the codec is wrong.

A harness swallows the one error that its codec declares, and checks what must be true of everything it lets through:
cut anywhere it is the same, written and read again it is the same, and another reader understands the same.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mcptrio._uri.template import UriTemplate
from mcptrio._wire import headers
from mcptrio._wire.jsonrpc import Malformed, decode, encode
from mcptrio._wire.lines import LineReader, LineTooLong
from mcptrio._wire.sse import ServerSentEvent, SseReader, encode_event
from mcptrio.auth.request_state import KeyRing, Recorded, RequestState, StateRefused, derive_id
from mcptrio.errors import DeclarationError, RemoteProtocolError
from mcptrio.transports.http_server.listener.framing import FramingLimits, Refusal
from mcptrio.transports.http_server.listener.gate import RequestGate

SMALL = 64
"""The bound on lines and events in these tests, so that fuzzing reaches it."""


def in_pieces(data: bytes) -> list[bytes]:
    """Cut the bytes in places that depend on them."""
    size = data[0] % 7 + 1 if data else 1
    return [data[at : at + size] for at in range(0, len(data), size)]


# -- JSON-RPC


def jsonrpc(data: bytes) -> None:
    try:
        found = decode(data)
    except RemoteProtocolError:
        return
    # Whatever we take for a message, the strictest reading of the standard library takes for one as well.
    understood = json.loads(
        data.removeprefix(codecs.BOM_UTF8).decode(), parse_constant=_refuse_constant, object_pairs_hook=_Pairs
    )
    if isinstance(found, tuple):
        assert len(understood) == len(found)
        frames = [(frame, tree) for frame, tree in zip(found, understood, strict=True)]
    else:
        frames = [(found, understood)]
    for frame, tree in frames:
        if isinstance(frame, Malformed):
            continue
        assert not tree.twice, "a key that stands twice was let through"
        assert tree.get("id") == getattr(frame, "id", None)
        assert tree.get("method") == getattr(frame, "method", None)
        assert decode(encode(frame)) == frame


class _Pairs(dict[str, Any]):
    """An object that knows whether a key stood twice in it, or in one below."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = len(self) != len(pairs) or any(_has_twice(value) for _, value in pairs)


def _has_twice(value: Any) -> bool:
    if isinstance(value, _Pairs):
        return value.twice
    return isinstance(value, list) and any(map(_has_twice, value))


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} was let through")


# -- lines


def lines(data: bytes) -> None:
    whole = LineReader(max_line=SMALL)
    at_once = whole.feed(data) + whole.eof()
    piecewise = LineReader(max_line=SMALL)
    bit_by_bit = [line for piece in in_pieces(data) for line in piecewise.feed(piece)] + piecewise.eof()
    expected: list[bytes | LineTooLong] = [
        LineTooLong(limit=SMALL) if len(line) > SMALL else line.removesuffix(b"\r")
        for line in data.split(b"\n")
        if len(line) > SMALL or (line and not line.isspace())
    ]
    assert at_once == bit_by_bit == expected


# -- server-sent events


def sse(data: bytes) -> None:
    whole, bits = SseReader(max_event=SMALL), SseReader(max_event=SMALL)
    at_once, bit_by_bit = _read_events(whole, [data]), _read_events(bits, in_pieces(data))
    assert at_once == bit_by_bit
    assert (whole.retry, whole.last_event_id) == (bits.retry, bits.last_event_id)
    assert (whole.error is None) == (bits.error is None)
    for event in at_once:
        if "\0" not in event.id:
            again = SseReader(max_event=2 * SMALL)
            assert again.feed(encode_event(event.data, event=event.event, id=event.id)) == [event]


def _read_events(reader: SseReader, pieces: list[bytes]) -> list[ServerSentEvent]:
    events: list[ServerSentEvent] = []
    with suppress(RemoteProtocolError):
        for piece in pieces:
            events += reader.feed(piece)
        reader.eof()
    return events


# -- HTTP, as far as it is ours

LIMITS = FramingLimits(max_header_bytes=512, max_headers=12, max_body=256)


def http_headers(data: bytes) -> None:
    _values(data.decode("latin-1"))
    handed, targets, refusal = _through_the_gate([data])
    handed_in_bits, targets_in_bits, refusal_in_bits = _through_the_gate(in_pieces(data))
    assert (targets, refusal and refusal.status) == (targets_in_bits, refusal_in_bits and refusal_in_bits.status)
    for out in (handed, handed_in_bits):
        # No request hides in the body of another: the parser behind the gate sees what the gate saw.
        seen = _seen_by_h11(out)
        assert seen[: len(targets)] == targets[: len(seen)]
        assert len(seen) <= len(targets)


def _values(text: str) -> None:
    headers.accepts(text, ["application/json"])
    for read in (headers.media_type, headers.parse_host, headers.parse_origin):
        with suppress(ValueError):
            read(text)
    with suppress(ValueError):
        decoded = headers.decode_header_value(text)
        assert headers.decode_header_value(headers.encode_header_value(decoded)) == decoded
    assert headers.decode_header_value(headers.encode_header_value(text)) == text
    headers.is_visible_ascii(text)


def _through_the_gate(pieces: list[bytes]) -> tuple[bytes, list[bytes], Refusal | None]:
    """Return the output (every response is given at once), the targets of complete heads, and the refusal."""
    gate = RequestGate(LIMITS)
    out, targets = b"", []
    for piece in pieces:
        gate.feed(piece)
        while True:
            found = gate.next()
            if isinstance(found, Refusal):
                found.encode()
                return out, targets, found
            if gate.head is not None and gate.requests > len(targets):
                targets.append(gate.head.path)  # the parser behind the gate gets the origin form
            out += found
            if gate.phase.name == "UPGRADING":
                return out, targets, None
            if gate.phase.name == "BUSY":
                if gate.head is not None and gate.head.version == b"1.0":
                    return out, targets, None
                gate.release()
            elif not found:
                break
    return out, targets, None


def _seen_by_h11(data: bytes) -> list[bytes]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
    connection.receive_data(data)
    seen: list[bytes] = []
    with suppress(h11.RemoteProtocolError):
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                seen.append(event.target)
            elif isinstance(event, h11.EndOfMessage):
                connection.send(h11.Response(status_code=204, headers=[]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    return seen
                connection.start_next_cycle()
            elif not isinstance(event, h11.Data):
                return seen
    return seen


# -- URI templates


def uri_template(data: bytes) -> None:
    text, _, uri = data.decode("utf-8", "replace").partition("\0")
    try:
        template = UriTemplate(text)
        template.require_matchable()
    except DeclarationError:
        return
    values = template.match(uri)
    if values is None:
        return
    assert set(values) <= set(template.variables)
    assert set(template.variables) - set(values) <= template.optional_variables
    # A name is what it means: spelled in the one way that we write, it means the same.
    assert template.match(template.expand(**values)) == values


# -- requestState

KEY = bytes(range(32))
RING = KeyRing([KEY])
BINDING = b'["audience","tools/call","digest","principal"]'
GENUINE = RING.seal(
    RequestState(id=b"0123456789abcdef", expires=1e12, parked="p", journal=Recorded("c", {}, {}, {})), BINDING
)
NONCE = bytes(12)


def request_state(data: bytes) -> None:
    with suppress(StateRefused):
        RING.open(data.decode("latin-1"), BINDING, now=0.0)
        raise AssertionError("a forged value was opened")
    # A genuine state with some of its characters changed.
    changed = bytearray(GENUINE.encode())
    for place, byte in zip(data[::2], data[1::2], strict=False):
        changed[place % len(changed)] = byte
    if changed != GENUINE.encode():
        with suppress(StateRefused):
            RING.open(changed.decode("latin-1"), BINDING, now=0.0)
            raise AssertionError("a changed state was opened")
    # Sealed by us, but of a shape that we do not know: a later version's, say.
    sealed = AESGCM(KEY).encrypt(NONCE, data, b"\x01" + BINDING)
    text = msgspec.json.encode(b"\x01" + derive_id(KEY) + NONCE + sealed).decode().strip('"').rstrip("=")
    with suppress(StateRefused):
        assert isinstance(RING.open(text.replace("+", "-").replace("/", "_"), BINDING, now=0.0), RequestState)


HARNESSES: dict[str, Callable[[bytes], None]] = {
    harness.__name__: harness for harness in (jsonrpc, lines, sse, http_headers, uri_template, request_state)
}
