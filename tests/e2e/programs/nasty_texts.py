"""A server with control and direction characters in every text."""

import json
import sys
from typing import Any

NASTY = "\x1b[31mred\x9b0m\u202eover\u2066\nERROR forged line\r\u2028"


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    sys.stderr.buffer.write(f"on stderr {NASTY}\n".encode())
    sys.stderr.buffer.flush()
    if "dies" in sys.argv:
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if number is None:
            continue
        if method == "initialize":
            capabilities = {"tools": {}, "logging": {}}
            info = {"name": NASTY, "version": NASTY}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            send(id=number, result=result)
        elif method == "tools/list":
            broken = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": NASTY}}}
            send(id=number, result={"tools": [{"name": "nasty", "inputSchema": broken}]})
        elif method == "tools/call":
            send(method=f"notifications/{NASTY}")
            send(method="notifications/message", params={"level": NASTY, "data": NASTY})
            send(id=number, error={"code": -32603, "message": NASTY})
        elif method == "ping":
            send(id=number, result={})
        else:
            send(id=number, error={"code": -32601, "message": NASTY})


main()
