"""Every example does, as a program of its own, what its docstring promises."""

from __future__ import annotations

import ast
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import connect
from mcptrio._eras.choose import ERAS
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO, VERSION
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import Tasks
from tests.conformance.fixture import PROGRAM, last_lines, wait_ready
from tests.conformance.toolchain import ROOT
from tests.ports import free_port
from tests.redis_server import need_program

EXAMPLES = ROOT / "examples"
TIMEOUT = 90.0
STATELESS = next(date for date, era in ERAS.items() if not era.stateful)
DATE = next(date for date, era in reversed(ERAS.items()) if era.stateful)
Json = dict[str, Any]
Answers = dict[str, Callable[[Json], Json]]


# -- a client over a pipe


class Pipe:
    """Asks over stdin and stdout; a watchdog ends a program that hangs, which ends the reading."""

    def __init__(self, child: subprocess.Popen[str], answers: Answers) -> None:
        self.child = child
        self.answers = answers
        self.notified: list[tuple[str, Json]] = []
        self.last_id = 0
        capabilities = {"elicitation": {}, "sampling": {}, "roots": {}}
        client = {"name": "test", "version": "1"}
        self.opening = self.ask("initialize", protocolVersion=DATE, capabilities=capabilities, clientInfo=client)
        self.send({"method": "notifications/initialized"})

    def send(self, frame: Json) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
        self.child.stdin.flush()

    def ask(self, method: str, **params: Any) -> Json:
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        assert self.child.stdout is not None
        for line in self.child.stdout:
            frame = json.loads(line)
            if "method" in frame and "id" in frame:
                self.send({"id": frame["id"], "result": self.answers[frame["method"]](frame["params"])})
            elif "method" in frame:
                self.notified.append((frame["method"], frame.get("params", {})))
            else:
                return result_of(frame)
        raise AssertionError(f"{method} was not answered before the program ended or {TIMEOUT} s were over")

    def call(self, name: str, /, **arguments: Any) -> Json:
        return self.ask("tools/call", name=name, arguments=arguments)


def result_of(frame: Json) -> Json:
    assert "error" not in frame, frame["error"]
    result: Json = frame["result"]
    return result


@contextlib.contextmanager
def piped(*command: str, env: dict[str, str] | None = None, answers: Answers | None = None) -> Iterator[Pipe]:
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    watchdog = threading.Timer(TIMEOUT, child.kill)
    watchdog.start()
    try:
        with child:
            yield Pipe(child, answers or {})
            assert child.stdin is not None
            child.stdin.close()  # the client leaves: so does the server
            assert child.wait(TIMEOUT) == 0
    finally:
        watchdog.cancel()
        child.kill()


def text_of(result: Json) -> str:
    (block,) = result["content"]
    return str(block["text"])


both_ways = pytest.mark.parametrize("way", ["python", "mcptrio run"])


def command(file: str, way: str = "python") -> tuple[str, ...]:
    path = str(Path("examples") / file)
    return (sys.executable, path) if way == "python" else (str(PROGRAM), "run", path)


# -- examples over stdio


@both_ways
def test_weather(way: str) -> None:
    with piped(*command("weather.py", way)) as client:
        (tool,) = client.ask("tools/list")["tools"]
        assert tool["inputSchema"]["required"] == ["city"], "`make demo` fills in a city and no more"
        found = client.call("forecast", city="Lisbon", days=2)["structuredContent"]
        assert (found["city"], found["unit"], len(found["days"])) == ("Lisbon", "°C", 2)
        assert all(day["low"] < day["high"] and 9 < day["daylight_hours"] < 15 for day in found["days"])
        warm = client.call("forecast", city="Lisbon", units="imperial")["structuredContent"]["days"][0]
        assert warm["low"] == pytest.approx(found["days"][0]["low"] * 9 / 5 + 32, abs=0.2)
        lost = client.call("forecast", city="Atlantis")
        assert lost["isError"]
        assert "Lisbon" in text_of(lost)


@both_ways
def test_order_desk(way: str) -> None:
    asked: list[str] = []
    said: Json = {"action": "decline"}

    def person(params: Json) -> Json:
        asked.append(params["message"])
        return said

    with piped(*command("order_desk.py", way), answers={"elicitation/create": person}) as client:
        assert client.call("order", order_id="7")["structuredContent"]["refunded"] == 0
        assert client.call("refund", order_id="7")["isError"]
        said = {"action": "accept", "content": {"refund": True, "reason": "late"}}
        assert text_of(client.call("refund", order_id="7")) == "Refunded 120.00 to Ada (late)."
        assert "already" in text_of(client.call("refund", order_id="7"))
        assert client.call("order", order_id="7")["structuredContent"]["refunded"] == 120
        assert asked == ["Refund 120.00 to Ada?"] * 2
        assert ("notifications/message", {"level": "info", "data": {"order": "7", "reason": "late", "note": ""}}) in (
            client.notified
        )


def test_notes_survive_a_restart_and_tell_of_changes(tmp_path: Path) -> None:
    env = {"NOTES_DB": str(tmp_path / "notes.db")}
    uri = "notes://note/rain"
    with piped(*command("notes.py"), env=env) as client:
        client.ask("resources/subscribe", uri="notes://index")
        (link,) = client.call("write_note", name="rain", text="Take an umbrella.")["content"]
        assert link["uri"] == uri
        client.ask("ping")
        assert ("notifications/resources/updated", {"uri": "notes://index"}) in client.notified
    with piped(*command("notes.py", "mcptrio run"), env=env) as client:
        (contents,) = client.ask("resources/read", uri=uri)["contents"]
        assert json.loads(contents["text"])["text"] == "Take an umbrella."
        found = client.call("search_notes", word="umbrella")["structuredContent"]["result"]
        assert [note["name"] for note in found] == ["rain"]
        ref, argument = {"type": "ref/resource", "uri": "notes://note/{name}"}, {"name": "name", "value": "r"}
        assert client.ask("completion/complete", ref=ref, argument=argument)["completion"]["values"] == ["rain"]
        assert client.call("write_note", name="a/b", text="")["isError"]


@both_ways
def test_middleware(way: str) -> None:
    with piped(*command("middleware.py", way)) as client:
        assert client.call("usage")["isError"]
        assert text_of(client.call("text_words", text="one two")) == "2"
        assert text_of(client.call("text_reverse", text="abc")) == "cba"
        assert client.call("usage")["structuredContent"] == {"usage": 2, "text_words": 1, "text_reverse": 1}
        assert [client.call("usage").get("isError") for _ in range(97)][-2:] == [None, True]


@both_ways
def test_writing_desk(way: str) -> None:
    def model(params: Json) -> Json:
        assert "headline" in params["messages"][0]["content"]["text"]
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "It Is Spring"}}

    with piped(*command("writing_desk.py", way), answers={"sampling/createMessage": model}) as client:
        messages = client.ask("prompts/get", name="review", arguments={"draft": "sea", "tone": "harsh"})["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert "a harsh review" in messages[0]["content"]["text"]
        for argument, value, values in (("draft", "s", ["spring", "sea"]), ("tone", "h", ["harsh"])):
            asked = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": argument, "value": value}}
            assert client.ask("completion/complete", **asked)["completion"]["values"] == values
        (message,) = client.ask("prompts/get", name="go_on", arguments={"draft": "sea", "sentences": "3"})["messages"]
        assert message["content"]["text"].startswith("Write 3 more sentences")
        assert text_of(client.call("headline", draft="spring")) == "It Is Spring"


def test_client() -> None:
    """The client answers the order desk's questions with the typed text."""
    done = subprocess.run(
        command("client.py"),
        cwd=ROOT,
        input="y\nlate\n\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("order desk speaks ")
    assert "The server asks: Refund 120.00 to Ada?" in done.stdout
    assert "[info] {'order': '7', 'reason': 'late', 'note': ''}" in done.stdout
    assert done.stdout.endswith("It says: Refunded 120.00 to Ada (late).\n")
    gone = (*command("client.py"), f"http://127.0.0.1:{free_port()}/mcp", "any")
    lost = subprocess.run(gone, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert lost.returncode == 1
    assert "Connection refused" in lost.stderr
    assert "Traceback" not in lost.stderr


async def test_own_transport() -> None:
    port = free_port()
    mine = command("own_transport.py")
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            serving = partial(trio.run_process, (*mine, "serve", str(port)), cwd=ROOT, check=False)
            child = await nursery.start(serving)
            await (await reach(port)).aclose()  # a client that says nothing
            for name in ("Ada", "Grace"):
                done = await trio.run_process((*mine, "call", str(port), name), cwd=ROOT, capture_stdout=True)
                assert done.stdout == f"Hello, {name}!\n".encode()
            async with await reach(port) as browser:
                await browser.send_all(b"POST / HTTP/1.1\r\n\r\n")  # its first four bytes are too large a length
                assert await browser.receive_some() == b""
            assert child.returncode is None
            child.kill()


async def reach(port: int) -> trio.SocketStream:
    while True:
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.05)


def test_many_servers(tmp_path: Path) -> None:
    done = subprocess.run(
        command("many_servers.py"), cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, *answers = done.stdout.splitlines()
    assert first.startswith("gone cannot be reached: ")
    assert second == "3 tools: weather_forecast, desk_order, desk_refund"
    assert sorted(answer.partition(":")[0] for answer in answers) == ["desk_order", "weather_forecast"]
    one, *arguments = command("weather.py")
    configuration = {"mcpServers": {"weather": {"command": one, "args": arguments, "cwd": str(ROOT)}}}
    (tmp_path / "mcp.json").write_text(json.dumps(configuration))
    mine = (*command("many_servers.py"), str(tmp_path / "mcp.json"))
    done = subprocess.run(mine, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stdout.startswith("1 tools: weather_forecast\nweather_forecast: {'city': 'Oslo'"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there")
def test_the_cluster_demo_kills_a_worker_and_the_client_continues(capfd: pytest.CaptureFixture[str]) -> None:
    """dev.py runs examples/cluster.py in the environment of the tests, instead of one that it makes."""
    need_program()
    program = "import sys, dev; dev.environment = lambda *_: dev.Path(sys.executable); sys.exit(dev.main())"
    child = subprocess.Popen((sys.executable, "-c", program, "demo-cluster", "--port", str(free_port())), cwd=ROOT)
    try:
        code = child.wait(4 * TIMEOUT)
    finally:
        child.kill()
        child.wait()
    out, err = capfd.readouterr()
    assert code == 0, err
    (killed,) = [line.split()[-1] for line in out.splitlines() if line.startswith("kill -9")]
    assert f"worker 1-{killed}-" in err or f"worker 0-{killed}-" in err
    assert "8 loaves, the last one by worker" in out
    assert killed not in out.partition("kill -9")[2].partition("\n")[2]
    assert "every step was shown once and in order: yes" in out
    assert "the server has drained and left" in err


@both_ways
async def test_tasks(way: str) -> None:
    """With a client that knows tasks, and with one that does not."""
    survey: Json = {"village": "Ely", "houses": 2}
    said: Json = {"agreed": True, "pages": 1}
    with trio.fail_after(TIMEOUT):
        async with extended(connect(command("tasks.py", way), elicit=lambda _: said, cwd=ROOT), Tasks()) as client:
            assert (await client.call_tool("publish", {"village": "Ely"})).is_error
            assert (await client.call_tool("survey", survey, into=dict))["people"] == 4
            result = await client.call_tool("publish", {"village": "Ely"})
            assert result.content[0].text == "Ely has 4 people, on 1 pages."  # type: ignore[union-attr]
    with piped(*command("tasks.py", way)) as client_without:
        assert client_without.call("survey", **survey)["structuredContent"]["people"] == 4


def test_the_conformance_fixture_over_stdio() -> None:
    with piped(*command("conformance/server.py", "mcptrio run")) as client:
        assert text_of(client.call("test_simple_text")) == "This is a simple text response for testing."
        sizes, cursor = [], {}
        while True:
            page = client.ask("resources/list", **cursor)
            sizes.append(len(page["resources"]))
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert sizes[:-1] == [10] * (len(sizes) - 1)
        assert len(sizes) > 2
        client.call("test_trigger_tool_change")
        client.ask("ping")
        assert "notifications/tools/list_changed" in [method for method, _ in client.notified]


# -- examples over HTTP


class Http:
    """Asks over Streamable HTTP, one request after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self.last_id = 0
        client = {"name": "test", "version": "1"}
        self.opening = self.ask("initialize", protocolVersion=DATE, capabilities={}, clientInfo=client)
        self.headers["MCP-Protocol-Version"] = DATE
        self._post({"method": "notifications/initialized"})

    def ask(self, method: str, **params: Any) -> Json:
        self.last_id += 1
        body = self._post({"id": self.last_id, "method": method, "params": params})
        lines = [line.removeprefix("data:") for line in body.splitlines() if not line.startswith(("id:", "event:"))]
        frames = [json.loads(line) for line in lines if line.strip().startswith("{")]
        return result_of(frames[-1])

    def call(self, name: str, /, **arguments: Any) -> Json:
        return self.ask("tools/call", name=name, arguments=arguments)

    def leave(self) -> None:
        request = urllib.request.Request(self.url, headers=self.headers, method="DELETE")
        urllib.request.urlopen(request, timeout=TIMEOUT).close()

    def _post(self, frame: Json) -> str:
        data = json.dumps({"jsonrpc": "2.0", **frame}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url, data, self.headers), timeout=TIMEOUT) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            text: str = answer.read().decode()
            return text


@contextlib.contextmanager
def serving(log: Path, ready: str, *command: str) -> Iterator[None]:
    """Run a program that serves until a signal stops it; it must then exit cleanly."""
    with log.open("wb") as sink:
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        wait_ready(child, ready, log)
        yield
        child.send_signal(signal.SIGINT)
        code = child.wait(TIMEOUT)
        assert code == 0, f"left with {code}:\n{last_lines(log)}"
        assert "Traceback" not in log.read_text(), last_lines(log)
    finally:
        child.kill()
        child.wait()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        text: str = answer.read().decode()
        return text


def test_embedded(tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{(port := free_port())}"
    with serving(tmp_path / "log", f"{base}/readyz", sys.executable, "examples/embedded.py", str(port)):
        client = Http(f"{base}/mcp")
        assert client.call("summary")["structuredContent"]["count"] >= 1
        assert text_of(client.call("pause")) == "paused"
        (contents,) = client.ask("resources/read", uri="meter://latest")["contents"]
        assert float(contents["text"]) > 0
        client.leave()
        assert f"serving at {base}/mcp" in (tmp_path / "log").read_text()


def test_protected(tmp_path: Path) -> None:
    """Calls without a token are refused; tests/e2e/test_authorization.py has tokens of a real authorization server."""
    base = f"http://127.0.0.1:{(port := free_port())}"
    command = (sys.executable, "examples/protected.py", "https://login.example.org", str(port))
    with serving(tmp_path / "log", f"{base}/readyz", *command):
        document = json.loads(get(f"{base}/.well-known/oauth-protected-resource/mcp"))
        assert document["authorization_servers"] == ["https://login.example.org"]
        assert document["scopes_supported"] == ["orders:read", "orders:write"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            Http(f"{base}/mcp")
        refused.value.close()
        assert (refused.value.code, "resource_metadata=" in refused.value.headers["WWW-Authenticate"]) == (401, True)


class ThroughTheSocket(http.client.HTTPConnection):
    """A connection like that of a proxy: to a Unix socket, with the original Host."""

    def __init__(self, path: Path) -> None:
        super().__init__("orders.example.org", timeout=TIMEOUT)
        self.path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


@pytest.mark.defect("S13")
@pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")
def test_behind_a_proxy() -> None:
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket must be short
        path, log = Path(folder, "s"), Path(folder, "log")
        command = (sys.executable, "examples/behind_proxy.py", str(path), "orders.example.org")
        with log.open("wb") as sink:
            child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        try:
            until_served(child, path, log)
            assert path.stat().st_mode & 0o777 == 0o660
            frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who_asks", "arguments": {}}}
            frame["params"] |= {"_meta": stateless_meta()}  # type: ignore[operator]
            headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            headers |= {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call", "Mcp-Name": "who_asks"}
            status, answer = post(path, frame, {**headers, "X-Forwarded-For": "192.0.2.7, 10.0.0.1"})
            assert status == 200, answer
            # The first entry is what the client sent itself; the proxy appends the address that it sees.
            assert result_of(answer)["structuredContent"] == {"host": "orders.example.org", "client": "10.0.0.1"}
            assert post(path, frame, {**headers, "Host": "elsewhere.example.org"})[0] == 421
            assert post(path, frame, {**headers, "Origin": "https://elsewhere.example.org"})[0] == 403
            child.terminate()
            assert child.wait(TIMEOUT) == 0, last_lines(log)
        finally:
            child.kill()
            child.wait()


def until_served(child: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(OSError), contextlib.closing(ThroughTheSocket(path)) as proxy:
            proxy.request("GET", "/readyz")
            if proxy.getresponse().status == 200:
                return
        threading.Event().wait(0.05)
    raise AssertionError(f"it does not serve:\n{last_lines(log)}")


def stateless_meta() -> Json:
    return {VERSION: STATELESS, CLIENT_INFO: {"name": "test", "version": "1"}, CAPABILITIES: {}}


def post(path: Path, frame: Json, headers: dict[str, str]) -> tuple[int, Json]:
    with contextlib.closing(ThroughTheSocket(path)) as proxy:
        proxy.request("POST", "/mcp", json.dumps(frame), headers)
        answer = proxy.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")


def uvicorn(file: str, port: int) -> tuple[str, ...]:
    module = file.removesuffix(".py")
    return (sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), f"{module}:app", "--port", str(port))


def hypercorn(file: str, port: int) -> tuple[str, ...]:
    bind = f"127.0.0.1:{port}"
    return (sys.executable, "-m", "hypercorn", "-k", "trio", "--bind", bind, f"examples/{file}:app")


def test_plain_hypercorn(tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{(port := free_port())}"
    with serving(tmp_path / "log", f"{base}/readyz", *hypercorn("plain_hypercorn.py", port)):
        client = Http(f"{base}/mcp")
        assert text_of(client.call("digest", text="x")).startswith("2d711642b726b044")
        client.leave()


def test_mounted_in_starlette(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    base = f"http://127.0.0.1:{(port := free_port())}"
    with serving(tmp_path / "log", f"{base}/", *hypercorn("mounted_starlette.py", port)):
        assert "/ai/mcp" in get(f"{base}/")
        client = Http(f"{base}/ai/mcp")
        assert client.call("visitors")["structuredContent"]["result"] >= 2
        client.leave()


def test_mounted_in_fastapi(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    base = f"http://127.0.0.1:{(port := free_port())}"
    with serving(tmp_path / "log", f"{base}/", *uvicorn("mounted_fastapi.py", port)):
        assert "/ai/mcp" in get(f"{base}/")
        client = Http(f"{base}/ai/mcp")
        assert client.call("visitors")["structuredContent"]["result"] >= 2
        client.leave()


def test_orders_in_fastapi(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")
    base = f"http://127.0.0.1:{(port := free_port())}"

    async def refund(era: str, sure: bool) -> bool:
        async with connect(f"{base}/ai/mcp", protocol=era, elicit=lambda params: {"sure": sure}) as client:
            assert (await client.call_tool("state", {"order_id": "7"})).text == "shipped"
            assert (await client.call_tool("state", {"order_id": "9"})).text == "There is no order 9."
            return not (await client.call_tool("refund", {"order_id": "7"})).is_error

    with serving(tmp_path / "log", f"{base}/orders/7", *uvicorn("fastapi_orders.py", port)):
        assert not trio.run(refund, "2025-11-25", False)
        assert trio.run(refund, "2026-07-28", True)
        assert "refunded" in get(f"{base}/orders/7")


def test_mounted_next_to_quart(tmp_path: Path) -> None:
    pytest.importorskip("quart_trio")
    base = f"http://127.0.0.1:{(port := free_port())}"
    with serving(tmp_path / "log", f"{base}/sign/Ada", *hypercorn("mounted_quart.py", port)):
        get(f"{base}/sign/Grace")
        client = Http(f"{base}/ai/mcp")
        # Ada signs once for each try to reach the server
        assert set(client.call("guest_list")["structuredContent"]["result"]) == {"Ada", "Grace"}
        client.leave()


# -- what every example keeps to

FILES = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_is_short_explains_itself_and_is_run_here(file: Path) -> None:
    source = file.read_text()
    assert len(source.splitlines()) < 80
    doc = ast.get_docstring(ast.parse(source))
    assert doc
    assert f"examples/{file.name}" in doc, "the docstring says how to run it"
    assert f'"{file.name}"' in Path(__file__).read_text() or f"examples/{file.name}" in Path(__file__).read_text()
