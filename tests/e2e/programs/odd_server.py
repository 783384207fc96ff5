"""Servers that are not quite right, in the ways that servers of others are: `odd_server.py stdio|http ODDITY`.

Each has two tools on two pages, and a tool `say` that answers "hello". Over HTTP it prints its port first.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TRANSPORT, ODDITY = sys.argv[1:]
SCHEMA = {"type": "object"}
CURSOR = "ereignis-é-✓"
TOLD = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hi"}}


def result_of(method, params):
    if method == "initialize":
        capabilities = {"tools": {}, "logging": {}}
        info = {"name": "odd", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        if "cursor" not in params:
            return {"tools": [{"name": "say", "inputSchema": SCHEMA}], "nextCursor": "two"}
        last = {"nextCursor": ""} if ODDITY == "empty cursor" else {}
        return {"tools": [{"name": "other", "inputSchema": SCHEMA}], **last}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "hello"}]}
    return {}


def answer_to(request):
    """The text that answers a request; None if it has no answer."""
    if "id" not in request:
        return None
    method, number = request["method"], request["id"]
    if method == "server/discover":
        answer = {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown method"}}
    else:
        answer = {"jsonrpc": "2.0", "id": number, "result": result_of(method, request.get("params", {}))}
    if ODDITY == "id as text":
        answer["id"] = str(number)
    if ODDITY == "other member null":
        answer = {"result": None, "error": None, **answer}
    if ODDITY == "array":
        answer = [answer]
    if ODDITY == "array with a notification":
        answer = [TOLD, answer]
    return json.dumps(answer)


def serve_stdio():
    for line in sys.stdin:
        request = json.loads(line)
        if ODDITY == "exits on discover" and request["method"] == "server/discover":
            sys.stderr.write("expected initialize\n")
            sys.exit(1)
        answer = answer_to(request)
        if answer is not None:
            sys.stdout.write(answer + "\n")
            sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    """Answers POST with JSON, or with a stream if the oddity is one of streams."""

    protocol_version = "HTTP/1.1"
    failures = 0
    asked = None

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if ODDITY.isdecimal() and request["method"] == "tools/list" and Handler.failures < 3:
            Handler.failures += 1
            return self.reply(int(ODDITY), "text/html", b"<h1>Bad Gateway</h1>")
        answer = answer_to(request)
        if answer is None:
            return self.reply(202, None, b"")
        if ODDITY == "ids beyond ASCII" and request["method"] == "tools/call":
            Handler.asked = answer
            return self.reply(200, "text/event-stream", f"retry: 100\nid: {CURSOR}\ndata:\n\n".encode())
        if request["method"] != "initialize" and ODDITY.startswith("array"):
            return self.reply(200, "text/event-stream", f"data: {answer}\n\n".encode())
        return self.reply(200, "application/json", answer.encode())

    def do_GET(self):
        cursor = self.headers.get("Last-Event-ID")
        if cursor is None or cursor.encode("latin-1").decode() != CURSOR:
            return self.reply(405, None, b"")
        return self.reply(200, "text/event-stream", f"id: 2\ndata: {Handler.asked}\n\n".encode())

    def reply(self, status, kind, body):
        self.send_response(status)
        if kind is not None:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if TRANSPORT == "stdio":
    serve_stdio()
else:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
