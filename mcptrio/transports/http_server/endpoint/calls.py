"""The calls of a process that died: the record of a call whose POST has become a stream, and the error that ends it.

A call record is stored with the stream, before its client gets an id of it, and removed at the end of the stream. The
process that continues the session finds the records of the calls that were not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcptrio._wire.jsonrpc import Batch, Error, Frame, Request, encode, encode_batch
from mcptrio.errors import INTERNAL_ERROR

from .message import JSON, Plain

CRASHED: Final = "the session failed before the call was answered; it may have been done"
DIED: Final = "the worker that ran this call died; it may have been done"
MAX_PARAMS: Final = 64 * 1024
"""Bytes of the record of a call that may run again; a larger one is answered with the error."""
MAY_HAVE_RUN: Final = {"mayHaveRun": True}


class CallRecord(Struct, frozen=True, omit_defaults=True):
    """A call that a stream answers, or the calls of a batch."""

    ids: tuple[int | str, ...]
    method: str = ""
    batch: bool = False
    params: dict[str, Any] | None = None
    """The parameters, if the call may run again."""


def encode_call(frame: Frame | Batch, may_rerun: Callable[[str, Mapping[str, Any]], bool]) -> bytes:
    """Return the record of a request or a batch, with the parameters of a request that may run again."""
    if type(frame) is Request and may_rerun(frame.method, frame.params):
        data = msgspec.json.encode(CallRecord((frame.id,), frame.method, params=frame.params))
        if len(data) <= MAX_PARAMS:
            return data
    return msgspec.json.encode(call_of(frame))


def call_of(frame: Frame | Batch) -> CallRecord:
    """Return the record of a request or a batch, without parameters."""
    if type(frame) is Request:
        return CallRecord((frame.id,), frame.method)
    members = frame if type(frame) is tuple else ()
    return CallRecord(tuple(m.id for m in members if type(m) is Request), batch=True)


def read_call(data: bytes) -> CallRecord | None:
    try:
        return msgspec.json.decode(data, type=CallRecord)
    except msgspec.DecodeError:
        return None


def died(call: CallRecord) -> bytes:
    """Return the error that ends the stream of a call whose process died."""
    errors = tuple(Error(id, INTERNAL_ERROR, DIED, MAY_HAVE_RUN) for id in call.ids)
    return encode_batch(errors) if call.batch else encode(errors[0])


def may_have_run(frame: Frame | Batch) -> Plain:
    """Build the response to a message whose process died, or lost the session: it may have been done."""
    call = call_of(frame)
    return Plain(200, JSON, died(call)) if call.ids else Plain(202)  # 202: as for a call that no longer exists
