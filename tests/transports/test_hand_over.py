"""Messages of a server that cannot be read fail the request that they answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, Error
from mcptrio.errors import RemoteProtocolError
from mcptrio.transports.client import Receiver, answered_ids, hand_over

MANY = b'{"content":[],"structuredContent":{"v":[' + b"0," * 150_000 + b"0]}}"


class Taken:
    """Stands for the receiver of a link."""

    json_limits = DEFAULT_LIMITS

    def __init__(self) -> None:
        self.frames: list[Any] = []

    async def deliver(self, frame: Any) -> None:
        self.frames.append(frame)


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":7,"result":%b}',
        b'{"jsonrpc": "2.0", "id": 7, "result": %b}\n',
        b'{"result":%b,"jsonrpc":"2.0","id":7}',
        b'{"jsonrpc":"2.0","result":%b,"id":7}',
    ],
)
async def test_a_response_with_too_many_values_fails_its_request(message: bytes) -> None:
    taken = Taken()
    frame = await hand_over(cast(Receiver, taken), message % MANY)
    assert taken.frames == [frame]
    assert not isinstance(frame, RemoteProtocolError)
    assert answered_ids(frame) == [7]
    assert isinstance(frame, Error)
    assert "more than 100000 JSON values" in frame.message


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":%b}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}',
        b'{"params":%b,"id":7}',
        b"[%b]",
    ],
)
async def test_another_message_with_too_many_values_is_skipped(message: bytes) -> None:
    taken = Taken()
    assert isinstance(await hand_over(cast(Receiver, taken), message % MANY), RemoteProtocolError)
    assert taken.frames == []
