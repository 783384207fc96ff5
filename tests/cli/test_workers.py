"""`mcptrio run --workers` with real processes: deaths, replacement, the end, and options that cannot be used."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcptrio.cli import main
from tests.ports import free_port
from tests.redis_server import running_server
from tests.tiers import exhaustive

APP = str(Path(__file__).with_name("worker_app.py"))
TIMEOUT = 30.0
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there")


class Cluster:
    """A parent process and its workers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    @property
    def workers(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.said.count(text) >= times, lambda: self.said)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> Any:
        """The result of a call on a connection of its own."""
        with Caller(self.port) as caller:
            return caller.call(tool, arguments, **params)

    def pid(self) -> int:
        return int(self.call("pid")["structuredContent"]["result"])


class Caller:
    """One connection that is kept alive until the server closes it."""

    def __init__(self, port: int, timeout: float = TIMEOUT) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.closes = False

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> Any:
        self.send(tool, arguments, **params)
        return self.receive()

    def send(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> None:
        self.sock.sendall(self.compose(tool, arguments, **params))

    def compose(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> bytes:
        named = {"name": tool, "arguments": arguments or {}, "_meta": META, **params}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": named}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMCP-Protocol-Version: {STATELESS}\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def receive(self) -> Any:
        """The result; of an event stream, its last message."""
        with self.sock.makefile("rb") as file:
            status = file.readline()
            if not status:
                raise ConnectionError("closed without a response")
            headers = {}
            while (line := file.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            self.closes = headers.get("connection", "") == "close"
            if "content-length" in headers:
                message = json.loads(file.read(int(headers["content-length"])))
            else:
                message = json.loads(self._last_event(file))
        if "error" in message:
            raise RuntimeError(f"{status!r} {message['error']}")
        return message["result"]

    def _last_event(self, file: Any) -> str:
        found = ""
        while size := int(file.readline(), 16):
            for line in file.read(size).decode().splitlines():
                found = line.removeprefix("data:") if line.startswith("data:") else found
            file.readline()
        return found


def wait_until(condition: Callable[[], bool], why: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def pause(seconds: float) -> None:
    """Give the server the time to read what was sent; there is no sign of it outside."""
    time.sleep(seconds)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def command(*arguments: str, app: str = APP) -> list[str]:
    return [sys.executable, "-m", "mcptrio", "run", app, "--transport", "http", *arguments]


@contextmanager
def serving(
    tmp_path: Path, *arguments: str, workers: int = 2, env: dict[str, str] | None = None, app: str = APP
) -> Iterator[Cluster]:
    port, log = free_port(), tmp_path / "log"
    argv = command("--port", str(port), "--workers", str(workers), *arguments, app=app)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=output, env={**os.environ, **(env or {})})
    cluster = Cluster(process, port, log)
    try:
        cluster.wait_for("orders is served at ")
        yield cluster
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children():
                child.kill()
        process.kill()
        process.wait()


def fetch_metrics(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()


class Load(threading.Thread):
    """Calls without a pause until it is stopped; every failure is kept."""

    def __init__(self, port: int, *, keep_alive: bool) -> None:
        super().__init__()
        self.port, self.keep_alive = port, keep_alive
        self.calls, self.failures = 0, list[str]()
        self.slowest = 0.0
        self.served_by = set[int]()
        self._stop_now = threading.Event()

    def run(self) -> None:
        caller = None
        while not self._stop_now.is_set():
            began = time.monotonic()
            try:
                caller = caller or Caller(self.port)
                self.served_by.add(caller.call("pid")["structuredContent"]["result"])
                self.calls += 1
                if caller.closes or not self.keep_alive:
                    caller.sock.close()
                    caller = None
            except (OSError, ConnectionError, RuntimeError) as error:
                self.failures.append(repr(error))
                caller = None
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.002)
        if caller is not None:
            caller.sock.close()

    def stop(self) -> None:
        self._stop_now.set()
        self.join(TIMEOUT)


@contextmanager
def load(port: int, threads: int = 2, *, keep_alive: bool) -> Iterator[list[Load]]:
    running = [Load(port, keep_alive=keep_alive) for _ in range(threads)]
    for one in running:
        one.start()
    try:
        yield running
    finally:
        for one in running:
            one.stop()


# -- deaths


def test_a_worker_that_is_killed_is_replaced_and_no_connection_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as cluster:
        before = cluster.workers
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: is_gone(before[0]))
        for _ in range(20):
            assert cluster.pid() in {*cluster.workers, before[1]}
        wait_until(lambda: len(cluster.workers) == 2)
        cluster.wait_for("was ended by signal 9")
        assert before[1] in cluster.workers
        assert cluster.end() == 0
    assert cluster.said.count("without a shared store") == 1
    assert re.search(r" worker=0 worker_id=0-\d+-[0-9a-f]{8}\n", cluster.said), "log lines name the worker"


@exhaustive
def test_calls_are_spread_over_the_workers_and_metrics_name_them(tmp_path: Path) -> None:
    with serving(tmp_path, "--preload") as cluster:
        with load(cluster.port, 8, keep_alive=False) as running:
            wait_until(lambda: len(set[int]().union(*(one.served_by for one in running))) == 2)
        assert [one.failures for one in running] == [[]] * 8
        os.kill(cluster.workers[0], signal.SIGKILL)
        cluster.wait_for("was ended by signal 9")
        wait_until(lambda: len(cluster.workers) == 2)
        page = fetch_metrics(cluster.port)
    assert 'mcptrio_worker_restarts_total{worker="' in page
    restarts = next(line for line in page.splitlines() if line.startswith("mcptrio_worker_restarts_total{"))
    assert restarts.endswith(" 1")


def test_the_metrics_of_all_workers_are_on_one_page_if_there_is_a_shared_store(tmp_path: Path) -> None:
    app = str(Path(__file__).parents[1] / "faults" / "cluster_app.py")
    with running_server() as redis, serving(tmp_path, "--store", redis.url, app=app) as cluster:

        def has_both() -> bool:
            page = fetch_metrics(cluster.port)
            return all(f'mcptrio_lease_remaining_seconds{{worker="{slot}"}}' in page for slot in (0, 1))

        wait_until(has_both)  # a worker knows the other one after its next renewal


@exhaustive
def test_too_many_deaths_end_the_parent(tmp_path: Path) -> None:
    with serving(tmp_path, workers=1) as cluster:
        deadline = time.monotonic() + TIMEOUT
        while cluster.process.poll() is None and time.monotonic() < deadline:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                for pid in cluster.workers:
                    os.kill(pid, signal.SIGKILL)
        assert cluster.process.wait(TIMEOUT) == 70
        assert "mcptrio: 4 workers died within 30 seconds; stopping" in cluster.said


@exhaustive
def test_a_worker_whose_event_loop_is_blocked_is_ended_with_its_stacks(tmp_path: Path) -> None:
    with serving(tmp_path, "--stuck-after", "1") as cluster:
        before = set(cluster.workers)
        with Caller(cluster.port) as caller:
            caller.send("block", {"seconds": 60})
            cluster.wait_for("has blocked its event loop for 1 s (--stuck-after)")
            cluster.wait_for("was ended by signal 6")
        wait_until(lambda: len(cluster.workers) == 2 and set(cluster.workers) != before)
        assert "in block" in cluster.said, "the stack names the function that blocks"


@exhaustive
def test_a_worker_that_is_stopped_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--stuck-after", "0.5") as cluster:
        stopped = cluster.workers[0]
        os.kill(stopped, signal.SIGSTOP)
        cluster.wait_for("was ended by signal 9")
        wait_until(lambda: len(cluster.workers) == 2 and stopped not in cluster.workers)


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    """R6: the workers notice the end of their parent, also while a handler blocks the event loop."""
    with serving(tmp_path, "--drain-timeout", "0.2") as cluster:
        workers = cluster.workers
        with Caller(cluster.port) as caller:
            caller.send("block", {"seconds": 60})
            began = time.monotonic()
            cluster.process.kill()
            wait_until(lambda: all(map(is_gone, workers)) and is_free(cluster.port))
            assert time.monotonic() - began < 0.2 + 5


@exhaustive
def test_a_stopped_worker_does_not_hide_the_end_of_the_parent(tmp_path: Path) -> None:
    """A copy of the parent's end of a connection, in another worker, would keep that connection open."""
    with serving(tmp_path, "--drain-timeout", "0.2") as cluster:
        first, second = sorted(cluster.workers, key=lambda pid: psutil.Process(pid).create_time())
        os.kill(second, signal.SIGSTOP)
        try:
            cluster.process.kill()
            wait_until(lambda: is_gone(first))
        finally:
            os.kill(second, signal.SIGKILL)


# -- replacing and ending


@pytest.mark.parametrize("keep_alive", [pytest.param(True, marks=exhaustive), False])
def test_all_workers_are_replaced_under_load_without_a_failed_call(tmp_path: Path, keep_alive: bool) -> None:
    with serving(tmp_path) as cluster:
        before = set(cluster.workers)
        with load(cluster.port, keep_alive=keep_alive) as running:
            cluster.process.send_signal(signal.SIGHUP)
            cluster.wait_for("all workers were replaced")
        assert [one.failures for one in running] == [[], []]
        assert not before & set(cluster.workers)
        assert len(cluster.workers) == 2


@pytest.mark.parametrize("shared", [False, True], ids=["no store", "redis"])
def test_a_request_that_arrives_while_its_worker_is_replaced_is_served(tmp_path: Path, shared: bool) -> None:
    """The worker has a part of it when the drain begins, and the rest comes later."""
    with ExitStack() as stack:
        store = ["--store", stack.enter_context(running_server()).url] if shared else []
        cluster = stack.enter_context(serving(tmp_path, *store))
        caller = stack.enter_context(Caller(cluster.port))
        late = caller.compose("pid")
        pid = caller.call("pid")["structuredContent"]["result"]
        caller.sock.sendall(late[:-5])
        cluster.process.send_signal(signal.SIGHUP)
        wait_until(lambda: re.search(rf"draining: .*-{pid}-", cluster.said) is not None, lambda: cluster.said)
        caller.sock.sendall(late[-5:])
        assert caller.receive()["structuredContent"]["result"] == pid
        cluster.wait_for("all workers were replaced")


@exhaustive
def test_a_file_that_is_broken_later_keeps_the_old_workers(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.write_text("")
    with serving(tmp_path, env={"START_FILE": str(start)}) as cluster:
        before = set(cluster.workers)
        start.write_text("1 / 0")
        cluster.process.send_signal(signal.SIGHUP)
        cluster.wait_for("the workers are not replaced")
        assert "ZeroDivisionError: division by zero" in cluster.said
        assert set(cluster.workers) == before
        start.write_text("")
        cluster.process.send_signal(signal.SIGHUP)
        cluster.wait_for("all workers were replaced")
        assert not before & set(cluster.workers)
        cluster.process.send_signal(signal.SIGUSR1)
        cluster.wait_for("there are no certificates to read again worker=0")
        cluster.wait_for("there are no certificates to read again worker=1")


@exhaustive
def test_a_worker_that_cannot_start_again_does_not_end_the_others(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.write_text("")
    with serving(tmp_path, env={"START_FILE": str(start)}) as cluster:
        one, other = cluster.workers
        start.write_text("1 / 0")
        os.kill(one, signal.SIGKILL)
        cluster.wait_for("cannot serve: ", times=6)
        assert cluster.pid() == other
        start.write_text("")
        cluster.wait_for("was ended by signal 9")
        wait_until(lambda: len(cluster.workers) == 2)
        assert other in cluster.workers


@exhaustive
def test_the_first_signal_waits_for_calls_and_the_second_does_not(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "25") as cluster, Caller(cluster.port) as caller:
        caller.send("slow", {"seconds": 20})
        with Caller(cluster.port) as other:
            other.send("slow", {"seconds": 0.5})
            pause(0.2)
            cluster.process.send_signal(signal.SIGTERM)
            assert other.receive()["structuredContent"], "the first signal let it finish"
            began = time.monotonic()
            assert cluster.process.poll() is None, "one call is still running"
            assert cluster.end() == 0
            assert time.monotonic() - began < 10
        with suppress(RuntimeError, ConnectionError):  # the error of a call that was cancelled
            caller.receive()


@exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_parent_ends_within_the_drain_timeout(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--drain-timeout", "1") as cluster, Caller(cluster.port) as caller:
        workers = cluster.workers
        caller.send("block", {"seconds": 60})
        pause(0.3)
        began = time.monotonic()
        assert cluster.end(number) == 75, "one worker did not stop in time"
        assert time.monotonic() - began < 1 + 10
        assert all(map(is_gone, workers))


@exhaustive
def test_a_signal_while_the_workers_start_ends_them(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.write_text("import time; print('loading', file=__import__('sys').stderr, flush=True); time.sleep(60)")
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command("--port", "0", "--workers", "2"), stderr=output, env={**os.environ, "START_FILE": str(start)}
        )
    try:
        wait_until(lambda: "loading" in log.read_text(), log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()


# -- sockets


ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""


@exhaustive
def test_workers_serve_the_sockets_of_a_service_manager(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, port = listener.fileno(), listener.getsockname()[1]
        with log.open("wb") as output:
            argv = [sys.executable, "-c", ACTIVATE, str(fd), *command("--workers", "2")]
            process = subprocess.Popen(argv, stderr=output, pass_fds=(fd,))
        cluster = Cluster(process, port, log)
        try:
            cluster.wait_for(f"orders is served at http://127.0.0.1:{port}/mcp by 2 workers")
            assert cluster.pid() in cluster.workers
            assert cluster.end() == 0
        finally:
            process.kill()
            process.wait()


@exhaustive
def test_a_unix_socket_is_removed_by_the_parent_only(tmp_path: Path) -> None:
    path, log = Path(f"/tmp/mcptrio-{os.getpid()}.sock"), tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command("--unix-socket", str(path), "--workers", "2"), stderr=output)
    cluster = Cluster(process, 0, log)
    try:
        cluster.wait_for(f"orders is served at unix:{path}/mcp by 2 workers")
        os.kill(cluster.workers[0], signal.SIGTERM)
        cluster.wait_for("ended with exit code 0")
        assert path.exists()
        assert cluster.end() == 0
        assert not path.exists()
    finally:
        process.kill()
        process.wait()


@exhaustive
def test_new_interpreters_do_what_forks_do(tmp_path: Path) -> None:
    """A thread that the file starts before the fork (`--preload`) forbids forks; so does macOS."""
    start = tmp_path / "start"
    start.write_text("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()")
    with serving(tmp_path, "--preload", env={"START_FILE": str(start)}) as cluster:
        assert "each worker is a new interpreter" in cluster.said
        before = cluster.workers
        assert all("mcptrio.cli.worker" in psutil.Process(pid).cmdline() for pid in before)
        os.kill(before[0], signal.SIGKILL)
        assert cluster.pid()
        wait_until(lambda: len(cluster.workers) == 2)
        assert parked_elsewhere(cluster, "replayed")
        cluster.process.send_signal(signal.SIGHUP)
        cluster.wait_for("all workers were replaced")
        assert cluster.end() == 0


# -- questions


def parked_elsewhere(cluster: Cluster, tool: str) -> str:
    """Ask a question in one worker and answer it in another; the text of the result, or of the refusal."""
    with Caller(cluster.port) as asked:
        question = asked.call(tool)
        (key,) = question["inputRequests"]
        answers = {key: {"action": "accept", "content": {"word": "yes"}}}
        here = int(asked.call("pid")["structuredContent"]["result"])
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            with Caller(cluster.port) as other:
                if int(other.call("pid")["structuredContent"]["result"]) == here:
                    time.sleep(0.001)
                    continue
                try:
                    result = other.call(tool, inputResponses=answers, requestState=question["requestState"])
                except RuntimeError as error:
                    return str(error)
                return str(result["content"][0]["text"])
    raise AssertionError("no connection reached the other worker")


@exhaustive
def test_a_question_is_answered_in_another_worker_or_refused_cleanly(tmp_path: Path) -> None:
    with serving(tmp_path) as cluster:
        assert "Answer(word='yes')" in parked_elsewhere(cluster, "replayed"), "all workers have the same keys"
        assert "requestState is not valid for this request" in parked_elsewhere(cluster, "plain")


@exhaustive
def test_workers_with_a_shared_store_serve_requests_that_stand_alone(tmp_path: Path) -> None:
    with running_server() as server, serving(tmp_path, "--store", server.url) as cluster:
        assert cluster.pid() in cluster.workers
        assert "Answer(word='yes')" in parked_elsewhere(cluster, "replayed")
        assert "without a shared store" not in cluster.said


# -- options that cannot be used


def refused(*arguments: str, app: str = APP, **env: str) -> tuple[int, str]:
    """The exit code and stderr of a cluster that does not begin to serve."""
    argv = command("--port", "0", "--workers", "2", *arguments, app=app)
    environment = {**os.environ, **env}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_broken_file_ends_the_start_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("from mcptrio import Server\n\n1 / 0\n")
    code, said = refused(app=str(file))
    assert (code, said) == (1, f"mcptrio: {file}:3: ZeroDivisionError: division by zero\n")


@exhaustive
def test_workers_that_die_before_they_are_ready_end_the_start(tmp_path: Path) -> None:
    file = tmp_path / "dying.py"
    file.write_text("import os, sys\nprint('I die', file=sys.stderr, flush=True)\nos._exit(3)\n")
    code, said = refused(app=str(file))
    assert code == 1
    assert said.count("I die") == 3
    assert said.count("ended with exit code 3 before it was ready") == 3
    assert said.endswith("mcptrio: 3 workers in a row died before they were ready; stopping\n")


@pytest.mark.parametrize(
    ("arguments", "dates", "line"),
    [
        pytest.param((), "2025-11-25", "to serve protocol versions with sessions (2025-11-25", id="sessions"),
        pytest.param(
            ("--protocol", f"2025-06-18,{STATELESS}"),
            STATELESS,
            "to serve protocol versions with sessions (2025-06-18",
            id="protocol",
            marks=exhaustive,
        ),
        pytest.param(
            ("--store", "sqlite:///x.db"),
            STATELESS,
            "needs a store that processes can share",
            id="sqlite",
            marks=exhaustive,
        ),
        pytest.param(
            ("--store", "redis://127.0.0.1:1"), STATELESS, "cannot reach the Redis server", id="redis", marks=exhaustive
        ),
        pytest.param(("--certfile", "nowhere"), STATELESS, "nowhere", id="certificate", marks=exhaustive),
        pytest.param(("--protocol", "2000-01-01"), STATELESS, "unknown protocol version", id="date", marks=exhaustive),
    ],
)
def test_a_server_that_workers_cannot_serve_ends_with_one_line(
    arguments: tuple[str, ...], dates: str, line: str
) -> None:
    code, said = refused(*arguments, DATES=dates)
    assert code == 1
    assert said.startswith("mcptrio: ")
    assert said.count("\n") == 1, said
    assert line in said


@exhaustive
def test_a_wrong_password_ends_with_one_line(tmp_path: Path) -> None:
    with running_server("--requirepass", "right") as server:
        (tmp_path / "password").write_text("wrong")
        (tmp_path / "password").chmod(0o600)  # others could read it otherwise, which is another line
        code, said = refused("--store", server.url, MCPTRIO_STORE_PASSWORD_FILE=str(tmp_path / "password"))
    assert code == 1
    assert said.count("\n") == 1, said
    assert "check name and password" in said


def test_a_second_server_under_the_name_of_another_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "billing.py").write_text("from mcptrio import Server\n\nserver = Server('billing')\n")
    app = str(Path(__file__).parents[1] / "faults" / "cluster_app.py")
    with running_server() as redis:
        url = redis.url
        with serving(tmp_path, "--store", url, app=app):
            code, said = refused("--store", url, "--log-level", "warning", app=str(tmp_path / "billing.py"))
    assert code == 1
    assert said == (
        "mcptrio: another server, 'orders', uses the same name in this store: give this one a name of its own, for "
        "example redis://host?name=billing\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--workers", "0", "--transport", "http"], "'0' is not a number of workers: write 1 or more, or auto"),
        (["--workers", "many", "--transport", "http"], "'many' is not a number of workers"),
        (["--workers", "2"], "--workers is an HTTP option: add --transport http"),
        (["--preload"], "--preload is an HTTP option: add --transport http"),
        (["--workers", "2", "--transport", "http", "--stuck-after", "-1"], "--stuck-after is a number of seconds"),
        (["--workers", "2", "--transport", "http", "--path", "mcp"], "'mcp' is not a path"),
        (["--workers", "2", "--transport", "http", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1: "),
        (
            ["--workers", "2", "--transport", "http", "--forward-address", "192.0.2.1:7000"],
            "--forward-address '192.0.2.1:7000' is reached over a network and needs TLS: set --forward-ca",
        ),
        (
            ["--workers", "2", "--transport", "http", "--forward-address", "127.0.0.1:7000"],
            "--forward-address needs port 0 with --workers",
        ),
        (["--transport", "http", "--forward-address", "here"], "--forward-address must be HOST:PORT, got 'here'"),
        (
            ["--transport", "http", "--forward-address", "127.0.0.1:0", "--forward-ca", "x"],
            "--forward-ca needs the others",
        ),
        (
            ["--transport", "http", "--lease", "5"],
            "--lease is for workers that share a store: add --store redis://HOST",
        ),
        (["--transport", "http", "--store", "redis://h", "--lease", "0"], "--lease must be 0.1 to 3600 seconds"),
    ],
)
def test_bad_options_end_with_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["run", APP, *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr().err
    assert code in (1, 2)
    assert said.startswith("mcptrio: ")
    assert said.count("\n") == 1
    assert line in said


def test_auto_is_one_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcptrio.cli.settings import read_settings

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert read_settings([APP, "--workers", "auto"]).workers == 3


def test_windows_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["run", APP, "--transport", "http", "--workers", "2"]) == 2
    assert "which Windows lacks: leave it out" in capsys.readouterr().err
