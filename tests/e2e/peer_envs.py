"""Other makers' clients, each in an environment of its own under `.cache/peers/`, made once per machine.

Where one cannot be made (no npm, no network) its tests are skipped with the reason. With `CI=true` they fail instead: a
machine that is there to test must not pass by testing nothing.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.conformance.toolchain import Unavailable, node, npm_package, python_package

PEERS = Path(__file__).parent / "peers"
TIMEOUT = 300.0  # for one whole drive


@dataclass(frozen=True, kw_only=True)
class Program:
    """A client that can be started: the words before its own arguments, and what its environment holds."""

    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **self.env},
            check=False,
        )


def python_driver(version: str, spec: str, script: str) -> Program:
    return Program(command=(str(python_package(f"peers/mcp-{version}", spec)), str(PEERS / script)))


def node_driver(name: str, spec: str, script: str) -> Program:
    modules = npm_package(f"peers/{name}", spec)
    return Program(command=(str(node().program), str(PEERS / script)), env={"PEER_MODULES": str(modules)})


def inspector() -> Program:
    modules = npm_package("peers/inspector", "@modelcontextprotocol/inspector@2")
    return Program(command=(str(node().program), str(modules / ".bin" / "mcp-inspector"), "--cli"), env=node().env)


STATELESS = ("python-mcp-2", "typescript-client-2")
"""Drivers whose clients speak the stateless life too."""
ONLY_STATEFUL = ("ping", "logging_level")
"""Features that the stateless life does not have: it has no ping, and a level goes with each request."""


def stateless(program: Program) -> Program:
    """Return a client's program with the stateless protocol selected."""
    return replace(program, env={**program.env, "PEER_LIFE": "stateless", "PEER_SKIP": ",".join(ONLY_STATEFUL)})


DRIVERS: dict[str, Callable[[], Program]] = {
    "python-mcp-2": lambda: python_driver("2", "mcp>=2,<3", "drive_mcp2.py"),
    "python-mcp-1": lambda: python_driver("1", "mcp>=1,<2", "drive_mcp1.py"),
    "typescript-client-2": lambda: node_driver("client-2", "@modelcontextprotocol/client@2", "drive_client2.mjs"),
    "typescript-sdk-1": lambda: node_driver("sdk-1", "@modelcontextprotocol/sdk@1", "drive_sdk1.mjs"),
}


def brought(make: Callable[[], Program]) -> Program:
    """The program, or a skip with the reason (a failure where CI is set)."""
    try:
        return make()
    except Unavailable as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))


def drive(program: Program, *target: str) -> dict[str, str]:
    """Feature -> "ok" or what went wrong, from the last line that a driver prints."""
    done = program.run(*target)
    lines = done.stdout.strip().splitlines()
    try:
        found: dict[str, str] = json.loads(lines[-1])
    except (IndexError, ValueError):
        pytest.fail(
            f"the driver left with {done.returncode} and no result:\n{done.stdout}\n{done.stderr}", pytrace=False
        )
    return found


def python_features() -> set[str]:
    """The features that `features.py` checks, without importing what it needs."""
    tree = ast.parse((PEERS / "features.py").read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef)
        and any(isinstance(mark, ast.Name) and mark.id == "feature" for mark in node.decorator_list)
    }


def typescript_features() -> set[str]:
    return set(re.findall(r"^  async (\w+)\(peer\) \{$", (PEERS / "features.mjs").read_text(), re.MULTILINE))
