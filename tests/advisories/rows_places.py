"""Mutants for the places of calls: worker threads and the limits of tools."""

from __future__ import annotations

from .mutant import Mutant

PLACES = "tests/server/test_places.py"
SOCKETS, UNIT = "tests/e2e/test_websocket_memory.py", "tests/transports/test_message_memory.py"
WEBSOCKET = "transports/http_server/hypercorn/websocket.py"
CONNECTION = "transports/http_server/hypercorn/connection.py"
MESSAGE_MEMORY = "transports/http_server/endpoint/message_memory.py"
SOCKET_SERVER = "transports/websocket/server.py"

MUTANTS = [
    Mutant(
        "S10", "a call that finds no thread is refused in time", "_actors/places.py",
        "        timeout = call.session.service.limits.busy_timeout\n", "        timeout = 30\n",
        PLACES, "test_a_plain_function_that_finds_no_thread_is_answered_as_overloaded",
    ),
    Mutant(
        "S10", "places are given back while the user is asked", "_actors/call.py",
        "            give_back(self.places)\n", "",
        PLACES, "test_a_plain_function_that_asks_the_user_gives_its_thread_place_back",
    ),
    Mutant(
        "S10", "parked calls in threads have a bound of their own", "_actors/parking.py",
        "        for table in (self._shares, self._in_threads) if in_thread else (self._shares,):\n",
        "        for table in (self._shares,):\n",
        PLACES, "test_one_client_cannot_leave_any_number_of_threads_that_wait_for_the_user",
    ),
    Mutant(
        "S10", "abandoned threads are counted", "_actors/places.py",
        "                self.zombies += 1\n", "",
        PLACES, "test_an_abandoned_thread_is_counted_and_named_until_it_ends",
    ),
    Mutant(
        "S10", "one limiter per runtime", "server/app.py",
        "            threads=Threads(Shares(self._threads)),\n",
        "            threads=self.__dict__.setdefault(\"shared\", Threads(Shares(self._threads))),\n",
        PLACES, "test_a_thread_that_was_abandoned_in_one_runtime_is_not_missing_in_the_next",
    ),
    Mutant(
        "S10", "the last quarter of the threads is kept for small owners", "_actors/shares.py",
        "            amount += self.size // 4\n", "            pass\n",
        PLACES, "test_one_client_cannot_hold_every_thread",
    ),
    Mutant(
        "S10", "a client of other tools counts for the threads", "_actors/runtime.py",
        "        self.threads.shares.owners = self.owners\n", "",
        PLACES, "test_one_client_cannot_hold_every_thread",
    ),
    Mutant(
        "S10", "an owner that is alone may use every thread", "_actors/shares.py",
        "if self.owners.several and not self._is_small(owner):\n", "if not self._is_small(owner):\n",
        PLACES, "test_the_only_client_may_use_every_thread",
    ),
    Mutant(
        "S7", "subscriptions of listen requests have a bound", "server/features/listen.py",
        "            ends.callback(take_places(session, uris))\n", "",
        "tests/stateless/test_listening.py", "test_one_client_cannot_subscribe_to_everything",
    ),
    Mutant(
        "S7", "subscriptions of sessions have a bound", "server/features/subscriptions.py",
        "    if not places.take(owner, amount):\n", "    if places.take_anyway(owner, amount):\n",
        "tests/server/test_resources.py", "test_the_subscriptions_of_all_sessions_have_a_bound",
    ),
    Mutant(
        "D07", "a change that waits for room is not overtaken by a later one", "server/features/listen.py",
        "            await self._link.room()  # before it leaves the queue: a later change must not overtake it\n", "",
        "tests/stateless/test_listening.py", "test_a_change_that_waits_for_room_is_not_overtaken_by_a_later_one",
    ),
    Mutant(
        "S2", "one listen request of an owner matches at a time", "server/features/listen.py",
        'async with session.runtime.one_at_a_time("listen request", session.owner):', "if True:",
        "tests/stateless/test_listening.py", "test_requests_of_one_owner_match_their_resources_one_after_the_other",
    ),
    Mutant(
        "S7", "requests of one owner leave turns to others (hypercorn)", "transports/http_server/hypercorn/asgi.py",
        "                await endpoint.runtime.turns.take(head.owner)\n", "                pass\n",
        "tests/e2e/test_turns.py", "test_many_connections_of_one_client_do_not_fill_a_turn",
    ),
    Mutant(
        "S7", "requests of one owner leave turns to others (direct)", "transports/http_server/direct/engine.py",
        "            await endpoint.runtime.turns.take(request.owner)\n", "            pass\n",
        "tests/e2e/test_turns.py", "test_many_connections_of_one_client_do_not_fill_a_turn",
    ),
    Mutant(
        "S7", "messages of WebSockets of one owner leave turns to others", "transports/websocket/server.py",
        "        await self._take_turn()\n", "",
        "tests/transports/test_websocket.py", "test_messages_on_many_sockets_of_one_client_take_turns",
    ),
    Mutant(
        "S7", "large pieces of one owner leave turns to others", "transports/http_server/listener/guarded_stream.py",
        "if self._turns is not None and len(data) >= _LARGE_PIECE:", "if False:",
        "tests/e2e/test_large_pieces.py", "test_one_client_reads_two_large_pieces_in_a_turn",
    ),
    Mutant(
        "S7", "an owner begins two requests in a turn", "_actors/turns.py",
        "        if begun == _PER_TURN or owner in self._waiting:\n", "        if begun == 50:\n",
        "tests/actors/test_turns.py", "test_an_owner_begins_two_requests_in_a_turn_once_there_is_another",
    ),
    Mutant(
        "S7", "calls in a WebSocket count for their owner", "transports/http_server/endpoint/admission.py",
        "        self._reserve(session.owner, amount)\n", "        self._reserve(\"\", amount)\n",
        "tests/auth/server/test_bounds.py", "test_one_principal_cannot_take_every_call_of_the_process",
        also=(("transports/http_server/endpoint/admission.py",
               "            self._reserve(session.owner, session.peer.at_work)\n",
               "            self._reserve(\"\", session.peer.at_work)\n"),),
    ),
    Mutant(
        "S7", "outboxes of one owner share their memory", "_actors/outbox.py",
        "            self.full = self.full or (self._bytes > 0 and not self.unread.room.has_room(self.owner, 1))\n", "",
        "tests/actors/test_outbox_and_reply.py", "test_outboxes_of_one_owner_share_their_memory",
    ),
    Mutant(
        "S7", "resumable streams of one owner share their memory", "transports/http_server/endpoint/event_stream.py",
        "        return self._charged > 0 and not self.unread.room.has_room(self.owner)\n", "        return False\n",
        "tests/transports/test_http_streams.py", "test_streams_that_one_client_does_not_read_share_their_memory",
    ),
    Mutant(
        "S2", "a large message is decoded in turns", "transports/decoding.py",
        "                await trio.sleep(rest * worked)\n", "",
        "tests/transports/test_decoding.py", "test_other_tasks_run_while_a_large_message_is_decoded",
    ),
    Mutant(
        "S2", "a large result is encoded in a turn of its own", "server/features/tools.py",
        "                await trio.lowlevel.cancel_shielded_checkpoint()\n", "                pass\n",
        "tests/server/test_result_forms.py", "test_a_large_result_is_converted_and_encoded_in_two_turns",
    ),
    Mutant(
        "S2", "an owner of large messages leaves the loop to others", "transports/decoding.py",
        "limits, rest=_REST)", "limits)",
        "tests/transports/test_decoding.py", "test_an_owner_of_large_messages_leaves_the_loop_to_others",
    ),
    Mutant(
        "S10", "a busy loop lets threads begin", "_actors/threads.py",
        "        if self.crossing and not timeout:\n            time.sleep(_PAUSE)\n", "        pass\n",
        "tests/actors/test_threads.py", "test_a_busy_loop_pauses_while_a_thread_begins_and_reports",
    ),
    Mutant(
        "S10", "a busy loop lets threads report", "_actors/places.py",
        "                place.pauses.crossing.add(place)\n", "                pass\n",
        "tests/actors/test_threads.py", "test_a_busy_loop_pauses_while_a_thread_begins_and_reports",
    ),
    Mutant(
        "S10", "the loop does not pause for a function that works", "_actors/places.py",
        "            place.pauses.crossing.discard(place)\n", "",
        "tests/actors/test_threads.py", "test_a_function_that_works_for_long_does_not_slow_a_busy_loop_down",
    ),
    Mutant(
        "S10", "the loop pauses for no thread that has ended", "_actors/places.py",
        "        self.pauses.crossing.discard(self)\n", "",
        "tests/actors/test_threads.py", "test_nothing_is_left_after_a_call",
    ),
    Mutant(
        "S7", "a request that does not fit locks no other owner out", "_actors/shares.py",
        "                if self._fits(owner, queue[0].amount):\n                    return owner\n",
        "                return owner if self._fits(owner, queue[0].amount) else None\n",
        "tests/actors/test_shares.py", "test_a_request_that_does_not_fit_locks_no_other_owner_out",
    ),
    Mutant(
        "S2", "one large message of an owner is decoded at a time", "_actors/runtime.py",
        "setdefault((what, owner), trio.CapacityLimiter(1))", "setdefault((what, owner), trio.CapacityLimiter(9))",
        "tests/transports/test_decoding.py", "test_large_messages_of_one_owner_are_decoded_one_after_the_other",
    ),
    Mutant(
        "S4", "a silent WebSocket keeps no message", "transports/pipe/server.py",
        "                del message, frame  #", "                #",
        "tests/transports/test_decoding.py", "test_a_pipe_whose_peer_is_silent_keeps_no_message",
    ),
    Mutant(
        "S4", "one message of a WebSocket waits for its session", "transports/http_server/hypercorn/connection.py",
        "while self._events and self._farewell", "while len(self._events) > 9 and self._farewell",
        "tests/e2e/test_hypercorn_websocket.py", "test_one_message_waits_for_the_app",
    ),
    Mutant(
        "S4", "Hypercorn is imported in a thread", "transports/http_server/direct/engine.py",
        "await trio.to_thread.run_sync(_make_hypercorn, self._endpoint, self._config)",
        "_make_hypercorn(self._endpoint, self._config)",
        "tests/faults/test_first_websocket.py", "test_the_first_websocket_does_not_block_the_loop",
    ),
    Mutant(
        "S2", "a batch is checked for scopes in turns", "transports/http_server/endpoint/scopes.py",
        "                await trio.lowlevel.checkpoint()", "                pass",
        "tests/transports/test_decoding.py", "test_other_tasks_run_while_the_scopes_of_a_batch_are_checked",
    ),
    Mutant(
        "S7", "a client that sends too much is refused after a second", "transports/http_server/endpoint/admission.py",
        "            await trio.sleep(uniform(*_EXCESS_DELAY))\n", "",
        "tests/transports/test_http_admission.py", "test_one_principal_cannot_take_all_places",
    ),
    Mutant(
        "S7", "a connection is freed when it ends", "transports/http_server/listener/guarded_stream.py",
        "        self.timer.close()\n", "        self.timer.stop()\n",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S7", "a connection of Hypercorn is freed when it ends", "transports/http_server/hypercorn/connection.py",
        "            del self.send, self.task_group  #", "            #",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S7", "a stream is freed when it ends", "transports/http_server/endpoint/exchange_stream.py",
        "        self._heartbeat.close()\n", "        self._heartbeat.stop()\n",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S7", "a link is freed when its stream ends", "transports/http_server/endpoint/stateless.py",
        "        stream, self._stream = self._stream, None\n", "        stream = self._stream\n",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S7", "the place of a thread is freed when it ends", "_actors/places.py",
        "        on_end, self.on_end = self.on_end, None  #", "        on_end = self.on_end  #",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S6", "WebSocket messages count for the memory of bodies", WEBSOCKET,
        "self.buffer.length > SMALL and not",
        "False and not",
        SOCKETS, "test_unfinished_messages_of_one_client_hold_no_more_than_the_memory",
    ),
    Mutant(
        "S6", "memory for a message is not waited for without end", MESSAGE_MEMORY,
        "timeout=timeout)",
        "timeout=3600)",
        SOCKETS, "test_a_message_that_gets_no_memory_closes_its_socket_with_1013",
    ),
    Mutant(
        "S6", "the owner of a socket is the owner of its messages", SOCKET_SERVER,
        "MessageMemory(endpoint.admission, head.owner)",
        'MessageMemory(endpoint.admission, "")',
        SOCKETS, "test_unfinished_messages_of_one_client_hold_no_more_than_the_memory",
    ),
    Mutant(
        "S6", "a message that holds memory has a deadline", WEBSOCKET,
        "            self.set_deadline(self._memory",
        "            (self._memory",
        SOCKETS, "test_a_large_message_that_stops_arriving_is_closed",
    ),
    Mutant(
        "S6", "other frames do not clear the deadline of a message", WEBSOCKET,
        "self.set_deadline is not None and not self.closed:",
        "self.set_deadline is not None and isinstance(event, Message):",
        SOCKETS, "test_a_large_message_that_stops_arriving_is_closed",
    ),
    Mutant(
        "S6", "a message that holds memory arrives at a minimum rate", WEBSOCKET,
        "self._memory.deadline(self.buffer.length)",
        "self._memory.deadline(2**40)",
        SOCKETS, "test_a_large_message_that_stops_arriving_is_closed",
    ),
    Mutant(
        "S6", "a late message is closed with its code", CONNECTION,
        "                await self.stream.close_late()  #",
        "                break  #",
        SOCKETS, "test_a_large_message_that_stops_arriving_is_closed",
    ),
    Mutant(
        "S6", "a peer that still sends receives the close frame", CONNECTION,
        "                await self.stream.close_late()  #",
        "                await self.stream.close_late()\n                break  #",
        SOCKETS, "test_a_client_that_still_sends_receives_the_close_frame",
    ),
    Mutant(
        "S6", "the parser of a WebSocket is freed when it ends", WEBSOCKET,
        "            connection._proto._parse_more.close()\n", "            pass\n",
        "tests/e2e/test_garbage.py", "test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector",
    ),
    Mutant(
        "S6", "a part of a message is dropped when its socket closes", WEBSOCKET,
        "            self.forget()  #",
        "            pass  #",
        SOCKETS, "test_what_arrived_of_a_message_is_dropped_with_its_memory",
    ),
    Mutant(
        "S6", "a socket that waits for memory need not answer pings", WEBSOCKET,
        "        with self._pause():\n            self._reserved",
        "        if True:\n            self._reserved",
        SOCKETS, "test_a_socket_that_waits_for_memory_may_answer_a_ping_later",
    ),
    Mutant(
        "S6", "a message that was handled gives its memory back", SOCKET_SERVER,
        "            self.memory.handled()\n",
        "",
        SOCKETS, "test_sockets_that_end_at_any_stage_give_their_memory_back",
    ),
    Mutant(
        "S6", "a socket that ends gives its memory back", SOCKET_SERVER,
        "        memory.close()\n",
        "        pass\n",
        SOCKETS, "test_sockets_that_end_at_any_stage_give_their_memory_back",
    ),
    Mutant(
        "S6", "a message holds its real size when it is complete", WEBSOCKET,
        "                memory.complete(self.buffer.length)\n",
        "",
        SOCKETS, "test_a_complete_message_holds_its_real_size_until_it_is_handled",
    ),
    Mutant(
        "S6", "the size of messages is bounded by the endpoint too", WEBSOCKET,
        "        self.buffer.max_length = min(self.buffer.max_length, memory.size)\n",
        "",
        SOCKETS, "test_a_complete_message_holds_its_real_size_until_it_is_handled",
    ),
    Mutant(
        "S6", "a socket that ends waits for no memory", MESSAGE_MEMORY,
        "            self._waiting.cancel()\n",
        "            pass\n",
        UNIT, "test_a_wait_that_is_ended_reserves_nothing",
    ),
    Mutant(
        "S6", "memory that is granted to a socket at its end goes back", MESSAGE_MEMORY,
        "        if reserved and scope.cancel_called:",
        "        if False:",
        UNIT, "test_a_wait_that_is_ended_reserves_nothing",
    ),
]  # fmt: skip
