"""Authorization servers that do not answer as they should, for a server that has to ask them.

One of them is well: tokens that it signed, or knows, are good. Each of the others fails in its own way, and so does
introspection of a token that is called like one of them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from tests.auth.server import kit

from .actions import Scene, action
from .session_actions import ask
from .tokens import good
from .wire import Reply

WAYS = ("down", "slow", "dripping", "failing", "missing", "moved", "huge", "html")
WITHIN = 2.0
_stopping = threading.Event()


class _Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(self.path.strip("/"), kit.jwks())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        token = parse_qs(body)["token"][0]
        now = time.time()
        said = {**kit.claims(iat=now - 10, exp=now + 300, sub=token), "active": True}
        self._answer(next((way for way in WAYS if token.startswith(way)), ""), said)

    def _answer(self, way: str, document: Any) -> None:
        body = json.dumps(document).encode()
        kind, status = "application/json", {"failing": 500, "missing": 404, "moved": 302}.get(way, 200)
        if way == "down":
            self.close_connection = True
            return
        if way == "slow":
            _stopping.wait(10)
            return
        if way == "html":
            kind, body = "text/html", b"<html>hi</html>"
        if way == "huge":
            body = b"[" + b"0," * 1_000_000 + b"0]"
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if way == "moved":
            self.send_header("location", "/keys")
        self.end_headers()
        try:
            for at in range(len(body) if way == "dripping" else 0):
                self.wfile.write(body[at : at + 1])
                if _stopping.wait(0.1):
                    return
            if way != "dripping":
                self.wfile.write(body)
        except OSError:  # the client gave up
            return

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: standard error is for errors."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: peers may disconnect at any time."""


@contextmanager
def serving() -> Iterator[int]:
    """The issuers on a port."""
    _stopping.clear()
    server = _Server(("127.0.0.1", 0), _Issuer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        _stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def issuer_of(way: str) -> str:
    return f"https://{way}.example.org"


def published(port: int) -> dict[str, Any]:
    """Settings of a server that fetches keys."""
    places = {kit.ISSUER: "keys", **{issuer_of(way): way for way in WAYS}}
    urls = {issuer: f"http://127.0.0.1:{port}/{path}" for issuer, path in places.items()}
    return {"bearer": {"resource": kit.RESOURCE, "issuers": list(urls), "jwks_uri": urls}, "heartbeat": 60}


def introspected(port: int) -> dict[str, Any]:
    """Settings of a server that asks about each token."""
    introspection = {"url": f"http://127.0.0.1:{port}/introspect", "client_id": "us", "client_secret": "secret"}
    bearer = {"resource": kit.RESOURCE, "issuers": [kit.ISSUER], "introspection": introspection}
    return {"bearer": bearer, "heartbeat": 60}


@action
def issuer_in_trouble(scene: Scene) -> Reply:
    """Ask with a token that may be valid but cannot be checked: the caller is not let in, nor kept waiting."""
    way = scene.case.data["way"]
    token = f"{way}-0123456789abcdef" if scene.case.data["server"] == "introspected" else good(iss=issuer_of(way))
    began = time.monotonic()
    reply = ask(scene.speaker, "POST", authorization=f"Bearer {token}")
    assert time.monotonic() - began < WITHIN * 2, "twice the bound, for a machine that is busy"
    assert "www-authenticate" not in reply.headers
    assert token.encode() not in reply.body
    assert scene.speaker.call("echo", text="x").status == 200
    return reply
