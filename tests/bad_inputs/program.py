"""The server under test, as a process: every feature once, and a second channel that reports its figures.

    python -m tests.bad_inputs.program '{"header_timeout": 0.4}'
    python -m tests.bad_inputs.program stdio

It says its port in the first line on standard output. After that every line on standard input is answered with one line
of JSON: how many tasks, descriptors and sessions there are, what went wrong, which limits were reached.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import trio

from mcptrio import Context, Header, ResourceNotFound, Server, telemetry
from mcptrio._actors.limits import Limits
from mcptrio.extensions.skills import safe_read
from mcptrio.extensions.skills.files import UnsafePath
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.telemetry.log import LogListener

PEOPLE = ("ann", "bob", "canary")
SECRET = "canary-of-a-secret-3f1c"
"""Stands in the texts of exceptions: must never cross the wire."""


@dataclass
class Size:
    size: str


def make_server(**options: Any) -> Server:
    """A server with a tool, a resource and a prompt of every kind that the catalogue needs."""
    server = Server("bad-inputs", version="1", page_size=2, **options)
    marks: set[str] = set()

    @server.session
    async def session(_: Any) -> Any:
        yield {"kept": None}

    @server.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def keep(ctx: Context, text: str | None = None) -> str:
        """Keep a text in the session, or tell it."""
        if text is not None:
            ctx.state["kept"] = text
        return str(ctx.state["kept"])

    @server.tool
    async def wait(seconds: float) -> str:
        """Take time."""
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def tell_and_wait(seconds: float, ctx: Context) -> str:
        """Say something, so that the stream has an event, then take time."""
        await ctx.info("waiting")
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def report(seconds: float, ctx: Context) -> str:
        """Report progress all the time."""
        began = trio.current_time()
        while trio.current_time() < began + seconds:
            await ctx.progress(trio.current_time() - began)
            await trio.sleep(0.02)
        return "reported"

    @server.tool
    async def slow_mark(text: str, seconds: float) -> str:
        """Leave a mark in the process now, and another one later."""
        marks.add(f"{text} begun")
        await trio.sleep(seconds)
        marks.add(text)
        return "marked"

    @server.tool
    async def marked(text: str) -> bool:
        """Whether a mark was left."""
        return text in marks

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        """Report progress, then answer."""
        for number in range(to):
            await ctx.progress(number, to)
        return "counted"

    @server.tool
    async def flood(ctx: Context, pieces: int = 400) -> str:
        """Send more than any socket buffers."""
        for _ in range(pieces):
            await ctx.info("x" * 65536)
        return "sent"

    @server.tool
    async def routed(region: Annotated[str, Header("Region")], n: Annotated[int, Header("Count")] = 0) -> str:
        """An argument that travels in a header too."""
        return region

    @server.tool(replay=True)
    async def ask(ctx: Context) -> str:
        """Ask for a size."""
        answer = await ctx.elicit("Which size?", Size, key="size")
        return answer.value.size if answer.value is not None else answer.action

    @server.tool(requires=["sampling"])
    async def samples(ctx: Context) -> str:
        """Needs a model."""
        return "never without"

    @server.tool
    async def noise(kind: str) -> str:
        """Use standard input and output as if they were one's own."""
        match kind:
            case "print":
                print("printed", flush=True)
                os.write(1, b"written\n")
            case "child":
                await trio.run_process([sys.executable, "-c", "print('from a child')"])
            case "read":
                os.read(0, 100)
        return "noise made"

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise RuntimeError(SECRET)

    @server.tool
    async def fail_as(kind: str) -> str:
        """Raise an exception that no handler should raise."""
        raise {
            "exit": SystemExit,
            "interrupt": KeyboardInterrupt,
            "generator": GeneratorExit,
            "memory": MemoryError,
            "group": lambda text: BaseExceptionGroup(text, [SystemExit(text), ValueError(text)]),
        }[kind](SECRET)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        """A note."""
        return f"note {name}"

    @server.resource("fixed://one")
    async def fixed() -> str:
        """One resource."""
        return "one"

    @server.resource("broken://one")
    async def broken() -> str:
        """Fails."""
        raise RuntimeError(SECRET)

    @server.resource("broken://exit")
    async def broken_exit() -> str:
        """Tries to end the process."""
        raise SystemExit(SECRET)

    @server.resource("files://{+path}")
    async def files(path: str) -> str:
        """A file under the folder that is served, and no other."""
        return (Path(__file__).parent / "served" / path).read_text()

    folder = Path(tempfile.mkdtemp(prefix="linked-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "good").write_text("good")
    for name, leads_to in {"out": "/etc/passwd", "up": "..", "self": "/proc/self", "round": "round"}.items():
        os.symlink(leads_to, folder / name)

    @server.resource("linked://{+path}")
    def linked(path: str) -> str:
        """Return a file of a folder that contains links out of it."""
        try:
            return safe_read(folder, path, limit=1000).decode()
        except (UnsafePath, OSError):
            raise ResourceNotFound(f"linked://{path}") from None

    @server.prompt
    def greet(name: str) -> str:
        """A greeting."""
        return f"Greet {name}"

    @greet.complete("name")
    async def names(prefix: str) -> list[str]:
        return [name for name in ("ann", "bob") if name.startswith(prefix)]

    return server


class Watcher(logging.Handler):
    """Records errors that must not happen, and counts limits."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.errors: list[str] = []
        self.limits: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()}"
        if any(token_of(name) in text for name in PEOPLE):
            self.errors.append("a token stands in the log")
        elif "\x00" in text:
            self.errors.append("a raw NUL stands in the log")
        elif record.levelno >= logging.ERROR:
            self.errors.append(text)

    def hear(self, event: telemetry.Event) -> None:
        match event:
            case telemetry.GuardCaught(layer=layer, error=error):
                self.errors.append(f"guard of the {layer}: {error!r}")
            case telemetry.LimitHit(name=name):
                self.limits[name] += 1
            case telemetry.Dropped(kind=kind):
                self.dropped[kind] += 1

    def state(self, server: Server) -> dict[str, Any]:
        root = trio.lowlevel.current_root_task()
        tasks, todo = 0, [root]
        names: list[str] = []
        while todo:
            task = todo.pop()
            tasks += task.name != "timers"  # they end when the last timer would have expired
            assert task is not None
            names.append(task.name)
            for nursery in task.child_nurseries:
                todo.extend(nursery.child_tasks)
        sessions = sum(len(runtime.supervisor.sessions) for runtime in server._app.publisher.runtimes)
        found, self.errors = self.errors, []
        return {
            "pid": os.getpid(),
            "tasks": tasks,
            "names": sorted(names),
            "fds": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
            "sessions": sessions,
            "errors": found,
            "limits": dict(self.limits),
            "dropped": dict(self.dropped),
        }


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789abcdef"


def split(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the server and those of HTTP."""
    from mcptrio.auth.server import BearerAuth, Introspection, StaticTokens

    options: dict[str, Any] = {}
    if "limits" in settings:
        options["limits"] = Limits(**settings.pop("limits"))
    if "store" in settings:
        settings["store"] = MemoryStore(StoreLimits(**settings.pop("store")))
    if "max_reply" in settings:
        options["max_reply"] = settings.pop("max_reply")
    if "bearer" in settings:
        bearer = settings.pop("bearer")
        if "introspection" in bearer:
            bearer["introspection"] = Introspection(**bearer["introspection"])
        settings["auth"] = BearerAuth(**bearer)
    elif settings.pop("named", False):
        settings["auth"] = StaticTokens({token_of(name): name for name in PEOPLE})
    return options, settings


async def main() -> None:
    options, settings = split(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    server = make_server(**options)
    if "auth" in settings:

        @server.tool(scopes=["orders:write"])
        async def scoped() -> str:
            """Needs more than others."""
            return "never"

    watcher = Watcher()
    logging.getLogger().addHandler(watcher)
    logging.getLogger("mcptrio").setLevel(logging.DEBUG)
    server.on_event(LogListener())
    server.on_event(watcher.hear)
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(_serve, server, {"port": 0, "keep_alive_timeout": 600, **settings})
        print(bound[0].port, flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as control:
            buffer = b""
            while data := await control.receive_some(4096):
                buffer += data
                while b"\n" in buffer:
                    _, _, buffer = buffer.partition(b"\n")
                    print(json.dumps(watcher.state(server)), flush=True)
        nursery.cancel_scope.cancel()


async def _serve(server: Server, settings: dict[str, Any], *, task_status: trio.TaskStatus[Any]) -> None:
    await server.serve_http(**settings, task_status=task_status)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        make_server().run()
    else:
        trio.run(main)
