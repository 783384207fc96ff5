"""Mutants for the memory of calls, their large requests and answers, and of what clients do not read."""

from __future__ import annotations

from .mutant import Mutant

CALLS, SESSIONS = "tests/transports/test_call_memory.py", "tests/transports/test_session_memory.py"
UNREAD, SOCKETS = "tests/transports/test_unread.py", "tests/e2e/test_unread.py"
ADMISSION = "transports/http_server/endpoint/admission.py"
GUARDED = "transports/http_server/listener/guarded_stream.py"
WEBSOCKET = "transports/http_server/hypercorn/websocket.py"

MUTANTS = [
    Mutant(
        "S6", "a call with a large request counts as memory", "_actors/handlers.py",
        "            call.charge()\n        self._launch", "            pass\n        self._launch",
        CALLS, "test_a_call_counts_until_it_ends_also_if_its_answer_is_a_stream",
    ),
    Mutant(
        "S6", "a call gives its memory back", "_actors/handlers.py",
        "        call.release()\n        if call.background", "        if call.background",
        CALLS, "test_a_call_that_is_cancelled_gives_its_memory_back",
    ),
    Mutant(
        "S7", "large requests wait for memory", "transports/http_server/endpoint/endpoint.py",
        "(self._post_large(head, body, size) if size else self._post(head, body))", "self._post(head, body)",
        CALLS, "test_large_requests_beyond_the_limit_are_refused",
    ),
    Mutant(
        "S6", "large requests over a socket need memory", ADMISSION,
        "if (size := memory_for(frame)) and not self", "if (size := 0) and not self",
        CALLS, "test_calls_over_a_socket_count_too",
    ),
    Mutant(
        "S7", "parked calls are bounded by their memory", "_actors/parking.py",
        "        while self._memory > self.max_memory", "        while False and self._memory > self.max_memory",
        CALLS, "test_parked_calls_are_bounded_by_their_memory_too",
    ),
    Mutant(
        "S7", "a parked call counts for no running one", "_actors/parking.py",
        "        call.release()\n", "",
        CALLS, "test_parked_calls_are_bounded_by_their_memory_too",
    ),
    Mutant(
        "S7", "a call that serves a retry counts for both requests", "_actors/call.py",
        "        self.keep(self.kept + size)\n", "        self.keep(size)\n",
        CALLS, "test_a_retry_needs_memory_and_its_call_counts_for_both",
    ),
    Mutant(
        "S6", "each request of a batch has its own size", "_wire/sized.py",
        "_sized(part, memory_of(bytes(text), limits))", "_sized(part, memory_of(b'', limits))",
        CALLS, "test_each_request_of_a_batch_has_its_own_size",
    ),
    Mutant(
        "S6", "decoded values count for more than their text", "_wire/sized.py",
        "return len(data) + min(extra, _NODE * limits.max_nodes)", "return len(data)",
        CALLS, "test_the_estimated_memory_is_at_least_what_a_decoded_message_takes",
    ),
    Mutant(
        "S7", "a task counts as memory", "extensions/tasks/run.py",
        "            params = SizedObject(params, size)", "            pass",
        CALLS, "test_a_task_counts_until_it_ends",
    ),
    Mutant(
        "S7", "few large requests wait in a session", "_actors/session.py",
        "ledger.waiting_memory >= _MAX_WAITING", "ledger.waiting_memory < 0",
        CALLS, "test_large_requests_that_wait_in_a_session_are_few",
    ),
    Mutant(
        "S7", "large requests that wait for their turn count as memory", "_actors/session.py",
        "        if ledger.waiting_memory + ledger.gathered_memory != self._counted_memory:\n", "        if False:\n",
        SESSIONS, "test_requests_that_wait_for_their_turn_count",
    ),
    Mutant(
        "S7", "waiting requests give their memory back when they are cancelled", "_peer/ledger.py",
        "            self.waiting.remove(call)\n            self.waiting_memory -= size_of(entry.start.params)\n",
        "            self.waiting.remove(call)\n",
        SESSIONS, "test_requests_that_wait_for_their_turn_count",
    ),
    Mutant(
        "S7", "waiting requests give their memory back when their session ends", "_actors/session.py",
        "        if self._counted_memory:\n            self._count_memory()\n", "",
        SESSIONS, "test_requests_that_wait_count_until_their_session_ends",
    ),
    Mutant(
        "S7", "few notifications wait in a session", "transports/http_server/endpoint/stateful.py",
        "if session.congested and may_start_call(frame):", "if session.congested and type(frame) in (Request, tuple):",
        SESSIONS, "test_only_so_many_notifications_wait_in_a_session",
    ),
    Mutant(
        "S7", "a call counts the answers that it keeps", "_actors/perform.py",
        "                    actor.handlers.keep(call, size)\n", "                    pass\n",
        SESSIONS, "test_answers_count_until_the_call_ends",
    ),
    Mutant(
        "S7", "large answers over a socket need memory", "transports/pipe/refusal.py",
        "        case Response(request_id) if memory_for(frame):\n", "        case Response(request_id) if False:\n",
        SESSIONS,
        "test_over_a_socket_the_handler_gets_the_error_for_an_answer_that_does_not_fit",
    ),
    Mutant(
        "S7", "a call counts the answers of earlier rounds", "_actors/call.py",
        "            self.kept += max(0, size - self.first)\n", "            pass\n",
        SESSIONS, "test_answers_of_earlier_rounds_count_too",
    ),
    Mutant(
        "S7", "arguments that are repeated count once", "_actors/call.py",
        "            self.kept += max(0, size - self.first)\n", "            self.kept += size\n",
        SESSIONS, "test_arguments_that_each_round_repeats_count_twice_at_most",
    ),
    Mutant(
        "S7", "a task counts the answers that it keeps", "extensions/tasks/asks.py",
        "                call.keep(size)\n", "                pass\n",
        SESSIONS, "test_an_answer_to_a_task_counts_until_the_task_ends",
    ),
    Mutant(
        "S7", "a message is decoded only when there is memory for it", "transports/http_server/endpoint/endpoint.py",
        "        refusal = await self.admission.reserve_message(head, size)\n", "        refusal = None\n",
        SESSIONS, "test_a_message_is_decoded_only_when_there_is_memory_for_it",
    ),
    Mutant(
        "S7", "a message that waits for a place counts", "transports/http_server/endpoint/admission.py",
        "        request.message_memory = size\n", "        self.call_memory.give_back(request.owner, size)\n",
        SESSIONS, "test_a_message_that_waits_for_a_place_counts",
    ),
    Mutant(
        "S7", "answers that wait for their batch count as memory", "_peer/ledger.py",
        "            self.gathered_memory += size\n", "",
        SESSIONS, "test_answers_of_a_batch_count_until_it_is_answered",
        also=(("_peer/ledger.py", "        self.gathered_memory -= group.size\n", ""),),
    ),
    Mutant(
        "S7", "answers that wait for their batch are bounded", "_actors/handlers.py",
        "Finished(number, fitting(session, number, outcome))", "Finished(number, outcome)",
        SESSIONS, "test_an_answer_of_a_batch_that_finds_no_memory_is_an_error",
    ),
    Mutant(
        "S7", "a stream whose connection is lost gives its memory back",
        "transports/http_server/endpoint/event_stream.py",
        "            self.unread.take(self, charged)\n", "",
        "tests/transports/test_random_clients.py", "test_nothing_is_counted_after_clients_have_done_anything",
    ),
    Mutant(
        "S7", "many small objects are not kept", "server/session_handle.py",
        " or memory_of(data, DEFAULT_LIMITS) > _MAX_DECODED", "",
        "tests/server/test_kept_requests.py", "test_many_small_objects_are_not_kept_although_they_are_short",
    ),
    Mutant(
        "S6", "a stream keeps no parameters", "transports/http_server/endpoint/post.py",
        "        self.frame = without_params(self.frame)\n", "",
        SESSIONS, "test_a_stream_that_is_not_read_keeps_no_parameters",
    ),
    Mutant(
        "S6", "a large error is shortened", "_wire/sized.py",
        "return Error(request_id, code, message[:_LONGEST_ERROR])", "return frame",
        SESSIONS, "test_a_large_error_is_shortened",
    ),
    Mutant(
        "S7", "messages that clients do not read are bounded", "_actors/unread.py",
        "        while self.used > self.size and", "        while False and",
        "tests/actors/test_unread.py", "test_as_many_are_cut_as_are_needed",
    ),
    Mutant(
        "S7", "the owner that has most unread loses a connection", "_actors/unread.py",
        "self._stalled(self._moved.largest())", "self._stalled(owner)",
        "tests/actors/test_unread.py",
        "test_the_owner_that_has_most_loses_the_connection_that_has_not_moved_for_longest",
    ),
    Mutant(
        "S7", "a connection that was read from is the last to go", "_actors/unread.py",
        "        self._moved.remove(place)\n        self._count(owner, -amount)\n        if before",
        "        self._count(owner, -amount)\n        if before",
        "tests/actors/test_unread.py",
        "test_the_owner_that_has_most_loses_the_connection_that_has_not_moved_for_longest",
        also=(("_actors/unread.py", "self._moved.add(owner, place, before - amount)", "pass"),),
    ),
    Mutant(
        "S7", "clients that read are not cut for others", "_actors/unread.py",
        " if trio.current_time() - self._waiting[place][2] >= STALLED_AFTER else None", "",
        SOCKETS, "test_clients_that_read_at_the_same_time_do_not_cut_each_other",
    ),
    Mutant(
        "S7", "one client cannot exceed the bound by reading", "_actors/unread.py",
        "self._most < stored != self._waiting[place][1]", "False",
        "tests/actors/test_unread.py", "test_an_owner_that_exceeds_its_part_by_itself_loses_its_newest_message",
    ),
    Mutant(
        "S7", "a client that reads gets the answers of many calls at once", "_actors/unread.py",
        "OF_ONE_OWNER: Final = 3", "OF_ONE_OWNER: Final = 1",
        SOCKETS, "test_a_client_that_reads_gets_the_answers_of_many_calls_at_once",
    ),
    Mutant(
        "S7", "a large answer exists once while it is written (hypercorn)",
        "transports/http_server/hypercorn/connection.py",
        "            case Body(data=data) if len(data) > WRITE_PIECE:", "            case Body(data=data) if not data:",
        SOCKETS, "test_a_large_answer_that_is_written_exists_once",
    ),
    Mutant(
        "S7", "a large answer exists once while it is written (direct)", "transports/http_server/direct/engine.py",
        "        if len(reply.body) <= WRITE_PIECE:", "        if True:",
        SOCKETS, "test_a_large_answer_that_is_written_exists_once",
    ),
    Mutant(
        "S7", "an answer that finds no room is replaced by an error", "transports/http_server/endpoint/post.py",
        "len(answer) > SMALL and", "False and",
        SOCKETS, "test_an_answer_that_finds_no_room_is_replaced_by_an_error",
    ),
    Mutant(
        "S7", "a write that ends after a cut gives nothing back", "_actors/unread.py",
        "        amount = min(amount, before)  # after a cut another task may have counted something\n", "",
        "tests/actors/test_unread.py", "test_a_write_that_ends_after_a_cut_gives_nothing_back",
    ),
    Mutant(
        "S7", "a stream of a session that is not read is cut", "transports/http_server/endpoint/event_stream.py",
        "            self.connection.detach(\"not read\")\n", "            pass\n",
        UNREAD, "test_a_stream_of_a_session_that_is_not_read_is_cut_and_its_call_goes_on",
    ),
    Mutant(
        "S7", "answers that are not read count as memory", GUARDED,
        "        self._unread.add(self, size)\n", "",
        SOCKETS, "test_the_connection_that_has_not_moved_for_longest_is_closed",
    ),
    Mutant(
        "S7", "a large message of a WebSocket counts while it is written", WEBSOCKET,
        "with self.keeping(sys.getsizeof(text)):", "with self.keeping(0):",
        SOCKETS, "test_a_large_message_that_a_socket_does_not_read_exists_once",
    ),
    Mutant(
        "S7", "a large message of a WebSocket is sent in fragments", WEBSOCKET,
        "len(event.data) <= WRITE_PIECE or", "True or",
        SOCKETS, "test_a_large_message_that_a_socket_does_not_read_exists_once",
    ),
    Mutant(
        "S7", "a stream that is not read is cut", "transports/http_server/endpoint/exchange_stream.py",
        "head.owner, self._cut)", "head.owner)",
        UNREAD, "test_the_stream_of_a_stateless_request_is_cut",
    ),
    Mutant(
        "S7", "an old session that is not read ends", "transports/legacy_sse/server.py",
        "        self.outbox.on_cut = partial(self.detach, \"not read\")\n", "",
        UNREAD, "test_an_old_session_whose_answers_are_not_read_ends",
    ),
    Mutant(
        "S7", "a WebSocket that is not read ends", "transports/websocket/server.py",
        "        outbox.on_cut = partial(session.close_nowait, Cause.DISCONNECT)\n", "",
        UNREAD, "test_a_socket_whose_answers_are_not_read_ends",
    ),
    Mutant(
        "S6", "a body gives its memory back before its answer is read (hypercorn)",
        "transports/http_server/hypercorn/asgi.py",
        "        endpoint.admission.release_body(head)  # the client may be slow to read the answer\n", "",
        SOCKETS, "test_a_body_holds_no_memory_while_its_answer_is_not_read",
    ),
    Mutant(
        "S6", "a body gives its memory back before its answer is read (direct)",
        "transports/http_server/direct/engine.py",
        "        self._endpoint.admission.release_body(request)  # the client may be slow to read the answer\n", "",
        SOCKETS, "test_a_body_holds_no_memory_while_its_answer_is_not_read",
    ),
]  # fmt: skip
