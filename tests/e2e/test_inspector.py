"""The MCP Inspector's command line meets the conformance fixture server, over HTTP and stdio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import fixture
from tests.e2e.peer_envs import Program, brought, inspector
from tests.tiers import exhaustive

pytestmark = exhaustive


@pytest.fixture
def program(tmp_path: Path) -> Program:
    found = brought(inspector)
    return replace(found, env={**found.env, "HOME": str(tmp_path)})  # it keeps a catalog of servers in the home folder


@pytest.fixture(params=["http", "stdio"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    if request.param == "stdio":
        yield fixture.stdio_command()
    else:
        with fixture.served(tmp_path / "server.log") as url:
            yield [url]


def ask(program: Program, target: list[str], method: str, *options: str) -> Any:
    done = program.run(*target, "--method", method, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_inspector_lists_the_tools(program: Program, target: list[str]) -> None:
    names = [tool["name"] for tool in ask(program, target, "tools/list")["tools"]]
    assert "test_simple_text" in names
    assert "test_structured_output" in names


def test_the_inspector_calls_a_tool(program: Program, target: list[str]) -> None:
    result = ask(program, target, "tools/call", "--tool-name", "test_structured_output", "--tool-arg", "city=Oslo")
    assert result["structuredContent"] == {"city": "Oslo", "temperature": 22.5, "conditions": "sunny"}


def test_the_inspector_reads_a_resource_and_gets_a_prompt(program: Program, target: list[str]) -> None:
    (one,) = ask(program, target, "resources/read", "--uri", "test://static-text")["contents"]
    assert one["text"] == "This is the content of the static text resource."
    (message,) = ask(program, target, "prompts/get", "--prompt-name", "test_simple_prompt")["messages"]
    assert message["content"]["text"] == "This is a simple prompt for testing."
