"""Mutants for requests that come from asyncio servers."""

from __future__ import annotations

from .mutant import HTTP, Mutant

REQUEST, TESTS = f"{HTTP}/hypercorn/asyncio_request.py", "tests/transports/test_asyncio_request.py"

MUTANTS = [
    Mutant(
        "U3", "a client that does not read stops its handler", REQUEST,
        'if message["type"] == "http.response.start" or message.get("more_body") is False:', "if True:",
        TESTS, "test_a_client_that_does_not_read_stops_the_handler_and_is_cut",
    ),
    Mutant(
        "U3", "a client that does not read is cut", REQUEST,
        "        self._hurry(0)\n", "",
        TESTS, "test_a_client_that_does_not_read_stops_the_handler_and_is_cut",
        also=((REQUEST, "call_soon(self._hurry, self._write_timeout)", "call_soon(len, ())"),),
    ),
    Mutant(
        "U3", "the end of a response has the write timeout", REQUEST,
        "call_soon(self._hurry, self._write_timeout)", "call_soon(len, ())",
        TESTS, "test_the_last_message_is_sent_within_the_write_timeout",
    ),
    Mutant(
        "U3", "a body is read ahead within a bound", REQUEST,
        "while len(self._incoming) < _READ_AHEAD:", "while len(self._incoming) < 100:",
        TESTS, "test_messages_are_read_ahead_within_a_bound",
    ),
    Mutant(
        "U3", "a response does not wait for a body that has not arrived", REQUEST,
        "                self._reads_first.cancel()\n", "",
        TESTS, "test_a_refusal_does_not_wait_for_the_body",
    ),
    Mutant(
        "U3", "a body that never arrives has a timeout", REQUEST,
        "                self._reads_first.cancel()\n", "",
        TESTS, "test_a_body_that_never_arrives_is_waited_for_within_its_timeout",
    ),
]  # fmt: skip
