"""Cases of one request: an otherwise good POST with a bad part, or the raw bytes of a connection."""

from __future__ import annotations

from typing import Any

from .catalogue import Case, fill, to_bytes
from .speaker import Speaker
from .verdicts import judge
from .wire import Connection


def run(case: Case, speaker: Speaker) -> None:
    with Connection(speaker.port) as connection:
        method = case.data.get("method", "POST")
        connection.send(compose(case, speaker))
        reply = connection.read(method)
        judge(reply, case.expect)
        if "closes" in case.expect:
            assert connection.is_closed(3.0 if case.expect["closes"] else 0.1) is case.expect["closes"]


def compose(case: Case, speaker: Speaker) -> bytes:
    """The bytes of a case."""
    data = case.data
    if case.kind == "raw":
        return _raw(data["raw"], speaker)
    if case.kind == "request":
        asked: dict[str, Any] = data["request"]
        body = speaker.message(asked["method"], asked.get("params"), asked.get("id", 1))
        if asked.get("notify"):
            body = speaker.message(asked["method"], asked.get("params"), None)
    elif "body" in data:
        body = to_bytes(data["body"], speaker)
    else:  # a good body: the fault is elsewhere
        body = speaker.message("tools/call", {"name": "echo", "arguments": {"text": "x"}})
    plain = body
    headers = {k: fill(v, speaker) if isinstance(v, str) else v for k, v in data.get("headers", {}).items()}
    if data.get("chunked"):
        headers |= {"content-length": None, "transfer-encoding": "chunked"}
        size = data["chunked"] if isinstance(data["chunked"], int) and data["chunked"] is not True else 65536
        body = b"".join(
            b"%x\r\n%b\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
        )
        body += b"0\r\n\r\n"
    method = data.get("method", "POST")
    if method != "POST" and "body" not in data:
        headers, plain, body = {"content-length": None, **headers}, b"", b""
    head = speaker.head(
        method,
        plain,
        path=fill(data.get("path", "/mcp"), speaker),
        version=data.get("version", "1.1"),
        headers=headers,
        lines=tuple(to_bytes(line, speaker) for line in data.get("extra", ())),
    )
    return head + body


def _raw(raw: Any, speaker: Speaker) -> bytes:
    """`$BODY` is a ping and `$LENGTH` its length; `$CHUNKS` is the ping in chunks, `$HEAD` has its usual headers."""
    method = "server/discover" if speaker.modern else "ping"
    body = speaker.message(method)
    fields = {name: value for name, value in speaker.fields(body).items() if name not in ("content-length", "host")}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    data = to_bytes(raw, speaker)
    data = data.replace(b"$HEAD", lines.encode()).replace(b"$BODY", body)
    data = data.replace(b"$CHUNKS", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    return data.replace(b"$LENGTH", str(len(body)).encode())
