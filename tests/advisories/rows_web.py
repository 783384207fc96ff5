"""Mutants for the guards of WebSocket connections."""

from __future__ import annotations

from .mutant import HTTP, Mutant

SOCKET = f"{HTTP}/hypercorn/websocket.py"
SOCKET_TESTS = "tests/e2e/test_hypercorn_websocket.py"

ISOLATION_TEST = "test_no_request_runs_with_the_body_or_the_principal_of_another_one"

MUTANTS = [
    Mutant(
        "S1", "the direct engine takes the body of its own request", f"{HTTP}/direct/engine.py",
        "        body = raw.body\n", "        body = self._last = raw.body or getattr(self, '_last', b'')\n",
        "tests/e2e/test_request_isolation.py", ISOLATION_TEST,
    ),
    Mutant(
        "S1", "every request is authenticated", f"{HTTP}/direct/engine.py",
        "            refusal = await run_in(request.context, endpoint.authenticate(request))\n",
        "            self._seen = getattr(self, '_seen', {})\n"
        "            if raw.head in self._seen:\n"
        "                request.set_principal(self._seen[raw.head])\n"
        "            else:\n"
        "                refusal = await run_in(request.context, endpoint.authenticate(request))\n"
        "                self._seen[raw.head] = request.principal\n",
        "tests/e2e/test_request_isolation.py", ISOLATION_TEST,
    ),
    Mutant(
        "S1", "a body is not given out again", f"{HTTP}/listener/gate.py",
        "            del self.buffer[: self._left]\n", "            pass\n",
        "tests/e2e/test_request_isolation.py", ISOLATION_TEST,
    ),
    Mutant(
        "S4", "other tasks run between small frames", SOCKET,
        "                await trio.lowlevel.checkpoint()\n", "                pass\n",
        SOCKET_TESTS, "test_a_message_of_many_small_fragments_lets_other_tasks_run",
    ),
    Mutant(
        "S4", "the fragments of a message are bounded", SOCKET,
        "if self._fragments > _MAX_FRAGMENTS:", "if False:",
        SOCKET_TESTS, "test_a_flood_of_small_frames_is_closed_with_1008",
    ),
    Mutant(
        "S4", "control frames per second are bounded", SOCKET,
        "return self._control > _MAX_CONTROL", "return False",
        SOCKET_TESTS, "test_a_flood_of_small_frames_is_closed_with_1008",
    ),
    Mutant(
        "S21", "a ping is answered in time", SOCKET,
        "if not self._alive and not self._delivering and not self.closed:", "if False:",
        SOCKET_TESTS, "test_a_peer_that_answers_no_ping_is_closed_with_1011",
    ),
]  # fmt: skip
