"""Mutants for the defects of the HTTP server."""

from __future__ import annotations

from .mutant import HTTP, Mutant

FRAMING, STATES = "tests/transports/test_framing.py", "tests/stateless/test_states.py"

MUTANTS = [
    Mutant(
        "S1", "a body leaves the gate with its request", f"{HTTP}/listener/gate.py",
        "        return RawRequest(head, data[end:])\n",
        "        self.kept = getattr(self, 'kept', b'') + data[end:]\n        return RawRequest(head, self.kept)\n",
        FRAMING, "test_a_body_that_was_not_used_does_not_reach_the_next_request",
    ),
    Mutant(
        "S6", "a body reserves memory when it arrives, not when it is announced", f"{HTTP}/hypercorn/asgi.py",
        "if size > SMALL and not head.body_memory:", "if not head.body_memory:",
        "tests/transports/test_http_bodies.py", "test_a_body_that_is_announced_and_not_sent_reserves_nothing",
    ),
    Mutant(
        "S6", "a body that holds memory has a minimum rate", f"{HTTP}/endpoint/admission.py",
        "min(self.config.body_timeout, arrived / self.config.min_body_rate)", "self.config.body_timeout",
        "tests/transports/test_http_bodies.py", "test_a_body_that_holds_memory_and_stops_arriving_is_refused_soon",
    ),
    Mutant(
        "S6", "a refused body holds no memory while it lingers", f"{HTTP}/hypercorn/asgi.py",
        "                endpoint.admission.release_body(head)  # the refusal lingers\n", "",
        "tests/transports/test_http_bodies.py", "test_a_body_that_holds_memory_and_stops_arriving_is_refused_soon",
    ),
    Mutant(
        "S7", "the owner that has most loses a parked call", "_actors/parking.py",
        "        self._count(call.session.owner, token, in_thread)\n", "        self._count(\"\", token, in_thread)\n",
        STATES, "test_one_client_cannot_push_the_parked_calls_of_others_out",
    ),
    Mutant(
        "S7", "the owner that has most loses a session", "_actors/supervisor.py",
        "        self._shares.add(session.owner, session.id)\n", "        self._shares.add(\"\", session.id)\n",
        "tests/transports/test_http_admission.py", "test_one_address_cannot_lock_others_out_of_sessions",
    ),
    Mutant(
        "S7", "an owner with a quarter waits for the others", "_actors/shares.py",
        "            if self._is_small(owner):\n", "            if True:\n",
        "tests/actors/test_shares.py", "test_an_owner_with_a_quarter_waits_for_others_also_if_its_turn_is_first",
    ),
    Mutant(
        "S7", "calls in a socket do not wait behind a large owner", "_actors/shares.py",
        "(not self._queues or self._goes_first(owner))", "not self._queues",
        "tests/e2e/test_websocket.py", "test_requests_of_another_client_that_wait_do_not_lock_a_socket_out",
    ),
    Mutant(
        "S7", "a request does not pass another one of its owner", "_actors/shares.py",
        "self._is_small(owner) and owner not in self._queues", "self._is_small(owner)",
        "tests/actors/test_shares.py", "test_a_small_owner_need_not_wait_behind_large_ones",
    ),
    Mutant(
        "S8", "a batch takes a place for each request", f"{HTTP}/endpoint/admission.py",
        "    return max(1, sum(isinstance(member, Request | Malformed) for member in frame))\n", "    return 1\n",
        "tests/transports/test_http_admission.py",
        "test_a_batch_takes_as_many_places_and_tokens_as_it_holds_requests",
    ),
    Mutant(
        "S18", "the rate of anonymous callers is counted by address", f"{HTTP}/endpoint/admission.py",
        "            self._check(\"\" if request.principal is None else owner, owner, amount)",
        "            self._check(\"\", str(id(request)), amount)",
        "tests/transports/test_http_admission.py", "test_a_new_session_does_not_restart_the_rate_of_an_address",
    ),
    Mutant(
        "E15", "a legacy stream ends with its token", "transports/legacy_sse/server.py",
        "        return leased(head, Stream(200, EVENTS, link))\n", "        return Stream(200, EVENTS, link)\n",
        "tests/transports/test_legacy_sse.py", "test_a_stream_ends_with_the_token_that_opened_it",
    ),
    Mutant(
        "E16", "a connected client gets what it has not received", f"{HTTP}/endpoint/event_stream.py",
        "keep_after=self.taken if keep else None)", "keep_after=None)",
        "tests/e2e/test_large_results.py", "test_a_result_over_4_mib_after_progress_reaches_the_client",
    ),
]  # fmt: skip
