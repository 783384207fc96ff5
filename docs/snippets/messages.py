"""The code of `howto/transports.md` about messages."""

from mcptrio import jsonrpc, types
from mcptrio.codec import from_json, to_json


def request_line() -> bytes:
    params = types.CallToolParams(name="greet", arguments={"name": "Ada"})
    return jsonrpc.encode(jsonrpc.Request(1, "tools/call", to_json(params))) + b"\n"


def text_of(line: bytes) -> str:
    match jsonrpc.decode(line):
        case jsonrpc.Response(result=result):
            return from_json(result, types.CallToolResult).text
        case jsonrpc.Error(code=code, message=message):
            return f"error {code}: {message}"
    raise ValueError("not a response")
