"""JSON-RPC 2.0 messages: the values, `encode` to bytes and `decode` from bytes."""

from mcptrio._wire.jsonrpc import (
    Batch,
    Error,
    Frame,
    JsonLimits,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode,
    encode_batch,
)

__all__ = [
    "Batch",
    "Error",
    "Frame",
    "JsonLimits",
    "Malformed",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "decode",
    "encode",
    "encode_batch",
]
