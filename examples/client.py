"""A client with callbacks: it answers what a server asks, and shows its progress and its log.

    python examples/client.py                                              a refund at examples/order_desk.py
    python examples/client.py http://127.0.0.1:8000/mcp refund order_id=8  any server, tool and arguments

The callbacks are the same at every protocol version, although the questions travel in very different ways.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from mcptrio import MCPTrioError, connect
from mcptrio.types import CreateMessageParams, ElicitParams, LoggingMessageParams, ProgressParams

DESK = [sys.executable, str(Path(__file__).with_name("order_desk.py"))]


async def elicit(params: ElicitParams) -> dict[str, Any] | None:
    """Ask the user, field by field. None declines."""
    print(f"The server asks: {params.message}")
    fields: dict[str, Any] = dict(params.requested_schema or {}).get("properties", {})
    answers: dict[str, Any] = {}
    for name, schema in fields.items():
        # `input` in a thread: everything else goes on meanwhile.
        text = await trio.to_thread.run_sync(
            input, f"  {name} ({schema.get('type', 'text')}): ", abandon_on_cancel=True
        )
        if text:
            answers[name] = text.lower() in ("y", "yes", "true") if schema.get("type") == "boolean" else text
    return answers or None


async def sample(params: CreateMessageParams) -> str:
    """A stand-in for a model: call yours here."""
    (*_, last) = params.messages
    return f"(no model here could answer: {last.content})"


def log(message: LoggingMessageParams) -> None:
    print(f"[{message.level}] {message.data}")


def show(progress: ProgressParams) -> None:
    print(f"{progress.progress:g}/{progress.total or '?'} {progress.message or ''}")


async def main(target: str | list[str], tool: str, arguments: dict[str, str]) -> None:
    async with connect(target, elicit=elicit, sample=sample, log=log, roots=[Path.cwd()], timeout=30) as client:
        print(f"{client.server_info.name if client.server_info else 'A server'} speaks {client.protocol_version}")
        result = await client.call_tool(tool, arguments, on_progress=show)
        print("It failed:" if result.is_error else "It says:", result.text)


if __name__ == "__main__":
    where, name, *pairs = sys.argv[1:] or ["", "refund", "order_id=7"]
    try:
        trio.run(main, where or DESK, name, dict(pair.split("=", 1) for pair in pairs))
    except MCPTrioError as error:
        sys.exit(f"{type(error).__name__}: {error}")
