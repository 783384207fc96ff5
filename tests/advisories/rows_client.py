"""Guards of the client against the servers that it talks to."""

from __future__ import annotations

from tests.advisories.mutant import Mutant

BUDGET = "tests/schema/test_budget.py"
LOOP_SCHEMAS = "tests/faults/test_loop_schemas.py"
RETRY = "tests/transports/test_retry.py"
HOSTILE_HTTP = "tests/transports/test_http_client_hostile.py"
FOLLOWING = "tests/extensions/test_following.py"
HTTP_CLIENT = "transports/http_client"
MULTI, LISTEN, STDIO_CLIENT = (
    "tests/client/test_multi.py",
    "tests/client/test_listen.py",
    "tests/transports/test_stdio_client.py",
)

MUTANTS = [
    # -- texts of servers in the log
    Mutant(
        "S15", "lines of a program's standard error are escaped in the log", "transports/stdio/client.py",
        "escape(text, READ_SIZE)", "text",
        "tests/client/test_logged_texts.py", "test_a_program_cannot_forge_lines_of_the_log",
    ),
    Mutant(
        "S15", "answers of a web server are escaped in the log", "transports/http_client/streamable.py",
        'method or "an answer", escape(error, 1000))', 'method or "an answer", error)',
        "tests/client/test_logged_texts.py", "test_a_web_server_cannot_forge_lines_of_the_log",
    ),
    Mutant(
        "H3", "a result for headers of one's own is not cached", "client/requester.py",
        'for option in ("answers", "state", "headers")', 'for option in ("answers", "state")',
        "tests/transports/test_http_client.py", "test_neg_a_result_for_headers_of_ones_own_is_not_cached",
    ),
    Mutant(
        "H3", "a caller may not set headers of the protocol", "client/features/headers.py",
        "        if _OF_THE_PROTOCOL.fullmatch(name):\n", "        if False:\n",
        "tests/client/test_headers.py", "test_neg_a_caller_may_not_add_headers_of_the_protocol_or_broken_ones",
    ),
    Mutant(
        "S3", "the expansion of a schema is bounded", "_schema/budget.py",
        "            if count > MAX_EXPANSION:", "            if False:",
        BUDGET, "test_a_schema_that_expands_too_far_is_refused",
    ),
    Mutant(
        "S3", "the work of checking a value is bounded", "_schema/budget.py",
        "            if total > MAX_WORK:", "            if False:",
        BUDGET, "test_a_value_over_the_budget_is_a_fault",
    ),
    Mutant(
        "S3", "a large schema of a server is compiled in a thread", "client/features/peer_schema.py",
        "    if is_within(schema, _SMALL):\n", "    if True:\n",
        LOOP_SCHEMAS, "test_a_schema_of_a_server_does_not_block_the_loop_of_a_client",
    ),
    Mutant(
        "S3", "the patterns of a server's schema are bounded", "_schema/check.py",
        "        if patterns > limits.max_patterns or repeats > limits.max_repeats**2:\n", "        if False:\n",
        LOOP_SCHEMAS, "test_a_schema_of_a_server_does_not_block_the_loop_of_a_client",
    ),
    Mutant(
        "S3", "a long text counts for more if a pattern backtracks", "_schema/budget.py",
        "    return work // _PATTERN_WORK * len(text) ** 2 // 140\n", "    return 0\n",
        LOOP_SCHEMAS, "test_a_schema_of_a_server_does_not_block_the_loop_of_a_client",
    ),
    Mutant(
        "S3", "lists and objects to compare with count with their size", "_schema/budget.py",
        "    equal = sum(2 * _nodes(value) for", "    equal = sum(0 for",
        LOOP_SCHEMAS, "test_a_schema_of_a_server_does_not_block_the_loop_of_a_client",
    ),
    Mutant(
        "S3", "a pattern that is given up is a fault", "_schema/check.py",
        'case "pattern" if hasattr(kind, "pattern"):', 'case "pattern":',
        LOOP_SCHEMAS, "test_a_pattern_that_is_given_up_is_a_fault",
    ),
    Mutant(
        "S3", "a large wrong value is not reported in detail", "_schema/check.py",
        "            if cost[0] > MAX_DETAIL:", "            if False:",
        BUDGET, "test_of_a_large_value_the_first_fault_is_reported",
    ),
    Mutant(
        "S3", "a pattern that backtracks counts for more", "_schema/budget.py",
        "_PATTERN_WORK: Final = 1000", "_PATTERN_WORK: Final = 0",
        BUDGET, "test_a_pattern_that_backtracks_counts_for_more",
    ),
    # -- outages
    Mutant(
        "D25", "a task is polled again as the server says", "extensions/tasks/follow.py",
        "                if wait is None or refusals >= REFUSALS:\n", "                if True:\n",
        FOLLOWING,
        "test_a_request_that_is_refused_for_now_is_retried_as_the_server_says",
    ),
    Mutant(
        "D10", "a call that is cancelled hears of its task", "client/requester.py",
        "        scope.deadline = trio.current_time() + LATE_ANSWER\n", "        scope.cancel()\n",
        FOLLOWING, "test_a_call_cancelled_while_its_handle_is_on_the_way_cancels_the_task",
    ),
    Mutant(
        "D11", "a key is marked before its question is asked", "extensions/tasks/follow.py",
        "        self._answered.update(new)  # first: another Trio task may poll meanwhile\n", "",
        FOLLOWING, "test_two_followers_of_one_task_ask_each_question_once",
    ),
    Mutant(
        "D12", "a callback that fails cancels the task", "extensions/tasks/follow.py",
        "                    await self.cancel()\n", "                    pass\n",
        FOLLOWING, "test_a_failing_callback_cancels_the_task_that_it_was_asked_for",
    ),
    Mutant(
        "C19", "the answer of a user is sent again", f"{HTTP_CLIENT}/streamable.py",
        "partial(self._headers, frame), repeat=repeat,", "partial(self._headers, frame), repeat=False,",
        RETRY, "test_the_answer_of_a_user_is_posted_again",
    ),
    Mutant(
        "C19", "a server may take its time over a message", f"{HTTP_CLIENT}/http.py",
        "if method == CANCELLED else self.config.accept_timeout", "",
        HOSTILE_HTTP, "test_a_server_may_take_its_time_over_a_notification_or_an_answer",
    ),
    Mutant(
        "C19", "an HTTP+SSE server may take its time over a message", f"{HTTP_CLIENT}/http.py",
        "if method == CANCELLED else self.config.accept_timeout", "",
        "tests/transports/test_legacy_sse_client.py", "test_a_server_may_take_its_time_over_a_notification",
    ),
    Mutant(
        "C19", "a message that may have arrived late is not repeated", f"{HTTP_CLIENT}/http.py",
        "isinstance(error, SessionGone | NotAnswered)", "isinstance(error, SessionGone)",
        HOSTILE_HTTP, "test_a_message_that_arrived_and_is_not_accepted_in_time_is_not_repeated",
    ),
    Mutant(
        "C19", "a cancellation holds no exchange for long", f"{HTTP_CLIENT}/http.py",
        "self.config.write_timeout if method == CANCELLED else ", "",
        HOSTILE_HTTP, "test_a_notification_that_is_never_answered_is_given_up",
    ),
    Mutant(
        "E18", "a call is resumed after a status that passes", f"{HTTP_CLIENT}/streamable.py",
        "            except (ConnectionLost, Overloaded) as failed:\n                error = failed\n        raise",
        "            except ConnectionLost as failed:\n                error = failed\n        raise",
        RETRY, "test_a_call_is_resumed_through_statuses_that_pass",
    ),
    Mutant(
        "E19", "the server's own stream is opened again after a status that passes", f"{HTTP_CLIENT}/streamable.py",
        "                except (ConnectionLost, Overloaded) as failed:\n                    error = failed\n",
        "                except ConnectionLost as failed:\n                    error = failed\n",
        RETRY, "test_the_servers_own_stream_is_opened_through_statuses_that_pass",
    ),
    Mutant(
        "E22", "a session is opened again through an outage", "transports/retry.py",
        "RETRYABLE: Final = (ConnectionLost, Overloaded, RequestTimeout)",
        "RETRYABLE: Final = (ConnectionLost, RequestTimeout)",
        RETRY, "test_a_session_is_opened_again_through_statuses_that_pass",
    ),
    Mutant(
        "E22", "502 is a status that passes", "transports/http_status.py",
        "    502: StatusMeaning(retry=True),\n", "",
        RETRY, "test_a_list_is_asked_for_again_after_a_status_that_passes",
    ),
    Mutant(
        "E22", "the pause of Retry-After is kept", "transports/retry.py",
        "min(error.retry_after, self.policy.most) if isinstance(error, Overloaded) else 0.0", "0.0",
        RETRY, "test_a_list_is_asked_for_again_after_a_status_that_passes",
    ),
    Mutant(
        "E23", "a subscription survives an outage", "client/features/listen.py",
        "                except RETRYABLE as error:\n", "                except ConnectionLost as error:\n",
        RETRY, "test_a_subscription_survives_statuses_that_pass",
    ),
    Mutant(
        "E23", "a subscription survives a resource that is gone", "client/features/listen.py",
        "                if not changes.acknowledged.is_set():\n", "                if True:\n",
        LISTEN, "test_a_listener_goes_on_without_a_resource_that_a_new_server_does_not_have",
    ),
    Mutant(
        "E23", "a subscription that never began is refused", "client/features/listen.py",
        "                if not changes.acknowledged.is_set():\n", "                if not changes.interrupted:\n",
        LISTEN, "test_a_resource_that_is_refused_before_the_block_begins_is_an_error",
    ),
    Mutant(
        "E23", "only what the server reports is honoured", "client/features/listen.py",
        "                    continue  # a listener", "                    pass  # a listener",
        LISTEN, "test_a_listener_goes_on_without_a_resource_that_a_new_server_does_not_have",
    ),
    Mutant(
        "E23", "missed changes are reported", "client/features/subscriptions.py",
        "            self.put_everything()\n", "",
        LISTEN, "test_a_listener_listens_again_and_counts_everything_as_changed",
    ),
    Mutant(
        "E24", "a WebSocket is opened again after a status that passes", "transports/websocket/client.py",
        "            raise refusal_of(response, b\"\")\n",
        "            raise RemoteProtocolError(str(refusal_of(response, b\"\")))\n",
        "tests/e2e/test_client_http.py", "test_a_websocket_is_opened_again_after_an_outage_behind_a_proxy",
    ),
    Mutant(
        "E26", "answers in arrays reach their callers", "client/connection.py",
        "                case Response() | Error() | Notification():\n", "                case Notification():\n",
        "tests/client/test_hostile.py", "test_an_array_may_answer_several_callers_and_hold_other_things",
    ),
    Mutant(
        "E26", "an error without an id leaves the answer to its caller", f"{HTTP_CLIENT}/streamable.py",
        "        stream.nameless = stream.nameless or next(nameless, None)\n",
        "        for one in nameless:\n            frame = replace(one, id=request_id)\n",
        HOSTILE_HTTP, "test_an_error_without_an_id_does_not_replace_the_answer",
    ),
    Mutant(
        "E26", "an error without an id leaves an array its other members", f"{HTTP_CLIENT}/streamable.py",
        "        stream.nameless = stream.nameless or next(nameless, None)\n",
        "        for one in nameless:\n            frame = replace(one, id=request_id)\n",
        HOSTILE_HTTP, "test_the_rest_of_an_array_with_an_error_without_an_id_is_delivered",
    ),
    Mutant(
        "E26", "an error without an id fails a call without an answer", f"{HTTP_CLIENT}/streamable.py",
        "            if stream.nameless is None:\n", "            if True:\n",
        HOSTILE_HTTP, "test_an_error_without_an_id_fails_the_call_whose_reply_it_is",
    ),
    Mutant(
        "E26", "an answer on the stream of another call ends its exchange", f"{HTTP_CLIENT}/streamable.py",
        "        self._close_exchanges(others)\n", "",
        HOSTILE_HTTP, "test_a_call_that_is_answered_on_the_stream_of_another_call_closes_its_own",
    ),
    Mutant(
        "E26", "an answer on the server's own stream ends its exchange", f"{HTTP_CLIENT}/streamable.py",
        "                self._close_exchanges(answered_ids(taken))\n", "                pass\n",
        HOSTILE_HTTP, "test_a_call_that_is_answered_on_another_stream_closes_its_own",
    ),
    Mutant(
        "E18", "a stream that the server still holds is tried again", f"{HTTP_CLIENT}/streamable.py",
        "            if meaning_of(response.status_code).stream_in_use:\n", "            if False:\n",
        RETRY, "test_a_call_is_resumed_although_the_server_still_holds_the_previous_connection",
    ),
    Mutant(
        "E24", "a WebSocket handshake has a limit", "transports/websocket/client.py",
        "httpx2.Timeout(self.config.connect_timeout, write", "httpx2.Timeout(None, write",
        "tests/e2e/test_client_http.py", "test_a_websocket_handshake_that_is_never_answered_ends",
    ),
    # -- opening, closing and what happens meanwhile
    Mutant(
        "C14", "no connection is opened in a closed nursery", "client/reconnect.py",
        "        await trio.lowlevel.checkpoint_if_cancelled()\n", "",
        "tests/e2e/test_cancelling.py", "test_a_client_of_a_server_in_this_process_is_cancelled_at_every_step",
        (
            (
                "client/exceptions.py",
                "        except (trio.Cancelled, GeneratorExit):\n",
                "        except BaseException:\n",
            ),
        ),
    ),
    Mutant(
        "C15", "a server that failed keeps its name", "client/multi.py",
        "for one in (*self._clients, *self.failed) if", "for one in self._clients if",
        MULTI, "test_a_call_for_a_server_that_failed_is_not_sent_to_another_one",
    ),
    Mutant(
        "C15", "the longest name of a server counts", "client/multi.py",
        "        return max(owners, key=len, default=None)\n", "        return owners[0] if owners else None\n",
        MULTI, "test_a_listed_name_leads_to_the_server_that_listed_it",
    ),
    Mutant(
        "C15", "a name that leads to another server is not listed", "client/multi.py",
        "        return owner == client\n", "        return True\n",
        MULTI, "test_a_listed_name_leads_to_the_server_that_listed_it",
    ),
    Mutant(
        "C16", "the last lines are kept during a flood", "transports/stdio/client.py",
        "            self._last.append(text[:500])\n            if not hand_on:\n                continue\n",
        "            if not hand_on:\n                continue\n            self._last.append(text[:500])\n",
        STDIO_CLIENT, "test_the_last_line_of_standard_error_is_kept_after_a_flood",
    ),
    Mutant(
        "C16", "lines are handed on again after a flood", "transports/stdio/client.py",
        "                if trio.current_time() >= until:\n", "                if False:\n",
        STDIO_CLIENT, "test_standard_error_is_handed_on_again_after_a_flood",
    ),
    Mutant(
        "C17", "unsubscribing leaves a listener its subscription", "client/features/listen.py",
        "        return not self._is_wanted(uri)\n", "        return True\n",
        LISTEN, "test_unsubscribing_does_not_silence_a_listener",
    ),
    Mutant(
        "C17", "subscriptions are counted", "client/features/listen.py",
        "        if self._subscribed[uri] > 1:\n", "        if False:\n",
        LISTEN, "test_a_listener_that_ends_does_not_silence_a_subscription_or_another_listener",
    ),
    Mutant(
        "C17", "a listener leaves others their subscription", "client/features/listen.py",
        "                        if not self._is_wanted(uri, without=changes):\n", "                        if True:\n",
        LISTEN, "test_a_listener_that_ends_does_not_silence_a_subscription_or_another_listener",
    ),
]  # fmt: skip
