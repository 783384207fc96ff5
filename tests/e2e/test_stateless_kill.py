"""The process is killed between a question and its answer: another one goes on, if the handler allows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from tests.engines import both_engines
from tests.stateless.kit import DATE, accept, meta

from .http_peer import HttpClient
from .server_process import ServerProcess, running

KEYS = "# the newest first\n" + "11" * 32 + "\n" + "00" * 32 + "\n"

pytestmark = [both_engines, pytest.mark.slow]


async def call(server: ServerProcess, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    params = {"_meta": meta(), "name": tool, "arguments": arguments, **more}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"mcp_protocol_version": DATE, "mcp_method": "tools/call", "mcp_name": tool}
    response = await HttpClient(server).send("POST", body, **headers)  # type: ignore[arg-type]  # has what it needs
    if response.headers["content-type"] == "application/json":
        frame = await response.json()
    else:
        frame = json.loads((await response.rest())[-1].data)
    answer: dict[str, Any] = frame
    return answer


class Deployment:
    """Processes that share a key, and perhaps a store."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, durable: bool) -> None:
        self.log, self.done, keys = folder / "log", folder / "done", folder / "keys"
        keys.write_text(KEYS)
        monkeypatch.setenv("REFUNDS_FILE", str(self.done))
        self.options = ["--state-key-file", str(keys)]
        if durable:
            self.options += ["--store", f"sqlite:///{folder / 'store.db'}"]

    def process(self) -> Any:
        return running("refunds.py", self.log, *self.options)


@pytest.fixture(params=[False, True], ids=["memory", "sqlite"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return Deployment(tmp_path, monkeypatch, durable=request.param)


ORDER = {"order_id": "7"}


async def killed_after_the_second_question(deployment: Deployment, tool: str) -> str:
    with deployment.process() as first:
        await first.wait_ready()
        asked = (await call(first, tool, ORDER))["result"]
        answers = {"refund": accept(sure=True)}
        asked = (await call(first, tool, ORDER, requestState=asked["requestState"], inputResponses=answers))["result"]
        assert list(asked["inputRequests"]) == ["letter"]
        first.process.kill()
        await first.wait(10)
    return str(asked["requestState"])


@pytest.mark.parametrize("tool", ["replayed", "idempotent"])
async def test_a_call_that_may_be_run_again_is_completed_by_the_next_process(deployment: Deployment, tool: str) -> None:
    with trio.fail_after(60):
        state = await killed_after_the_second_question(deployment, tool)
        with deployment.process() as second:
            await second.wait_ready()
            more = {"requestState": state, "inputResponses": {"letter": accept(sure=False)}}
            answer = await call(second, tool, ORDER, **more)
    assert answer["result"]["content"][0]["text"] == "refunded, letter False"
    assert deployment.done.read_text().split("\n")[:-1] == ["begun", "refunded 7", "begun"]


async def test_any_other_call_is_refused_and_the_log_says_why(deployment: Deployment) -> None:
    with trio.fail_after(60):
        state = await killed_after_the_second_question(deployment, "plain")
        with deployment.process() as second:
            await second.wait_ready()
            more = {"requestState": state, "inputResponses": {"letter": accept(sure=False)}}
            answer = await call(second, "plain", ORDER, **more)
    message = "requestState is not valid for this request; begin again without it"
    assert answer["error"] == {"code": -32602, "message": message}
    assert "declare the tool read_only, idempotent or replay=True" in deployment.log.read_text()
    assert deployment.done.read_text().split("\n")[:-1] == ["begun", "refunded 7"]


async def crashed_in_the_first_process(deployment: Deployment, crash: str) -> dict[str, Any]:
    """Answer the first question, which ends the first process; return the reply of the second one."""
    arguments = {**ORDER, "crash": crash}
    with deployment.process() as first:
        await first.wait_ready()
        asked = (await call(first, "replayed", arguments))["result"]
        more = {"requestState": asked["requestState"], "inputResponses": {"refund": accept(sure=True)}}
        with pytest.raises((OSError, trio.BrokenResourceError, h11.RemoteProtocolError)):
            await call(first, "replayed", arguments, **more)
        assert await first.wait(10) == -9
    with deployment.process() as second:
        await second.wait_ready()
        result: dict[str, Any] = (await call(second, "replayed", arguments, **more))["result"]
        return result


async def test_a_result_of_once_is_known_after_a_crash_right_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a durable store `once` counts from the moment it returns, not from the next question on."""
    deployment = Deployment(tmp_path, monkeypatch, durable=True)
    with trio.fail_after(60):
        again = await crashed_in_the_first_process(deployment, "afterwards")
    assert list(again["inputRequests"]) == ["letter"]
    assert deployment.done.read_text().split("\n")[:-1] == ["begun", "refunded 7", "begun"]


async def test_a_function_of_once_does_not_run_again_after_a_crash_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path, monkeypatch, durable=True)
    with trio.fail_after(60):
        again = await crashed_in_the_first_process(deployment, "inside")
    assert again["isError"] is True
    assert "may have taken effect" in again["content"][0]["text"]
    assert deployment.done.read_text().split("\n")[:-1] == ["begun", "refunded 7", "begun"]
