"""RESP3 in plain Python: an encoder for what a server sends, and a parser to compare hiredis with."""

from __future__ import annotations

from typing import Any

from mcptrio._wire.resp import Push, ServerError


def encode(value: Any) -> bytes:
    """The bytes with which a server would send a value."""
    match value:
        case None:
            return b"_\r\n"
        case bool():
            return b"#t\r\n" if value else b"#f\r\n"
        case int():
            return b":%d\r\n" % value
        case float():
            return b",%s\r\n" % repr(value).encode()
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case ServerError():
            return b"-%s\r\n" % str(value).encode()
        case dict():
            pairs = b"".join(encode(key) + encode(item) for key, item in value.items())
            return b"%%%d\r\n%b" % (len(value), pairs)
        case _:
            sign = b">" if isinstance(value, Push) else b"*"
            return b"%b%d\r\n%b" % (sign, len(value), b"".join(map(encode, value)))


class OracleParser:
    """Reads everything again with each piece: slow, and too simple to be wrong."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[Any]:
        self._data += data
        found = []
        while True:
            try:
                value, end = _parse(self._data, 0)
            except IndexError:
                return found
            found.append(value)
            self._data = self._data[end:]


def _parse(data: bytes, at: int) -> tuple[Any, int]:
    """One value and where it ends; IndexError if it is not complete."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        raise IndexError
    sign, rest, at = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    match sign:
        case b"_":
            return None, at
        case b"#":
            return rest == b"t", at
        case b":":
            return int(rest), at
        case b",":
            return float(rest), at
        case b"+":
            return rest, at
        case b"-":
            return ServerError(rest.decode()), at
        case b"$":
            end = at + int(rest)
            if len(data) < end + 2:
                raise IndexError
            return data[at:end], end + 2
        case b"*" | b">" | b"%":
            items = []
            for _ in range(int(rest) * (2 if sign == b"%" else 1)):
                item, at = _parse(data, at)
                items.append(item)
            if sign == b"%":
                return dict(zip(items[::2], items[1::2], strict=True)), at
            return (Push(items) if sign == b">" else items), at
    raise ValueError(data)
