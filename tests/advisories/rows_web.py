"""Mutants for the guards of web pages and WebSocket connections."""

from __future__ import annotations

from .mutant import HTTP, Mutant

SOCKET = f"{HTTP}/hypercorn/websocket.py"
SOCKET_TESTS = "tests/e2e/test_hypercorn_websocket.py"

CORS, CORS_TESTS = f"{HTTP}/endpoint/cors.py", "tests/transports/test_cors.py"

ISOLATION_TEST = "test_no_request_runs_with_the_body_or_the_principal_of_another_one"

MUTANTS = [
    Mutant(
        "U1", "a page whose origin is not allowed can read nothing", f"{HTTP}/endpoint/guard.py",
        "            if named:\n                head.cors = page_headers(",
        "            if True:\n                head.cors = page_headers(",
        CORS_TESTS, "test_pages_of_this_machine_may_call_but_get_no_cors_headers",
    ),
    Mutant(
        "U1", "a refused page can read nothing", f"{HTTP}/endpoint/guard.py",
        '            head.cors = VARY\n            if "*" in named:',
        '            head.cors = page_headers(head.fields[b"origin"])\n            if "*" in named:',
        CORS_TESTS, "test_no_other_page_can_read_anything",
    ),
    Mutant(
        "U1", "no cache gives a page the response for another", CORS,
        'VARY: Final[Headers] = ((b"vary", b"Origin"),)', "VARY: Final[Headers] = ()",
        CORS_TESTS, "test_a_named_page_gets_the_headers_whatever_the_answer_is",
    ),
    Mutant(
        "U1", "a page sends no header that was not named", CORS,
        "if name in _HEADERS or name in further or _PARAMETER.fullmatch(name)]", "if name]",
        CORS_TESTS, "test_only_headers_that_are_known_or_named_are_allowed",
    ),
    Mutant(
        "U1", "a preflight of a page that was not named is refused", CORS,
        " or len(head.cors) <= len(VARY):\n", ":\n",
        CORS_TESTS, "test_pages_of_this_machine_may_call_but_get_no_cors_headers",
    ),
    Mutant(
        "U1", "a star opens no private network", CORS,
        ' and origin[1] != b"*":', ":",
        CORS_TESTS, "test_a_star_allows_every_origin_but_no_private_network_access",
    ),
    Mutant(
        "U1", "metrics are not for pages", f"{HTTP}/endpoint/endpoint.py",
        "            head.cors = ()  # web pages may not read it\n", "",
        CORS_TESTS, "test_health_paths_get_no_cors_headers",
    ),
    Mutant(
        "U1", "Host is compared for public documents too", f"{HTTP}/endpoint/endpoint.py",
        "        if refusal is not None and refusal.status != 403:  # pages", "        if False:  # pages",
        "tests/e2e/test_discovery.py", "test_everyone_may_read_it_with_any_origin_and_without_a_token",
    ),
    Mutant(
        "U1", "only OPTIONS is a preflight", CORS,
        '    if head.method != "OPTIONS" or', "    if",
        "tests/bad_inputs/test_catalogue.py", "test_a_bad_request_gets_the_reply_of_the_catalogue",
    ),
    Mutant(
        "S1", "the direct engine takes the body of its own request", f"{HTTP}/direct/engine.py",
        "        body: bytes | Plain | None = raw.body\n",
        "        body: bytes | Plain | None = raw.body or getattr(self, '_last', b'')\n        self._last = body\n",
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
        "if not self._alive and not self._paused and not self.closed:", "if False:",
        SOCKET_TESTS, "test_a_peer_that_answers_no_ping_is_closed_with_1011",
    ),
]  # fmt: skip
