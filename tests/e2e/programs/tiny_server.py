"""A server of 2025-11-25 on standard streams that starts in a few milliseconds, because it imports one module."""

import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, reply = request["method"], {}
    if method == "initialize":
        reply = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }
    elif method == "tools/call":
        reply = {"content": [{"type": "text", "text": "3"}]}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": reply}) + "\n")
    sys.stdout.flush()
