"""Mutants for defects of correctness (C, D and E) that were repaired."""

from __future__ import annotations

from .mutant import Mutant

ACQUIRE, DISCOVERY, KEYS = (
    "tests/auth/test_acquire.py",
    "tests/auth/test_discovery.py",
    "tests/auth/server/test_keys.py",
)
SIGN_IN = "tests/transports/oauth/test_token_source.py"
RETRY = "tests/transports/test_retry.py"
ONCE, ANSWERS = "tests/stateless/test_once.py", "tests/stateless/test_answers.py"
HTTP_CLIENT = "transports/http_client"

CANCELLED = "tests/e2e/test_foreign_cancelled.py"

MUTANTS = [
    # -- handlers
    Mutant(
        "C01", "the nursery of stateless calls is opened again", "_actors/supervisor.py",
        "                sessions.start_soon(self._hold_calls, True)\n", "                pass\n",
        CANCELLED, "test_a_handler_that_cancels_the_nursery_of_its_task_does_not_end_the_server",
        (
            (
                "_actors/supervisor.py",
                "                self._calls = sessions  # until the next one is open\n",
                "                pass\n",
            ),
        ),
    ),
    Mutant(
        "C01", "a call that ends its session is not repeated", "transports/http_server/endpoint/post.py",
        "        if http.session.ended is Cause.CRASH and request_id is not None:\n", "        if False:\n",
        CANCELLED, "test_a_handler_that_cancels_the_nursery_of_its_task_does_not_end_the_server",
    ),
    Mutant(
        "C01", "a stateless call that is cancelled is answered", "_actors/exchange.py",
        "                self.close_nowait(Cause.CRASH)  # by a handler, perhaps",
        "                # by a handler, perhaps",
        CANCELLED, "test_a_handler_that_cancels_the_nursery_of_its_task_does_not_end_the_server",
    ),
    Mutant(
        "C01", "a supervisor that ends by itself ends the server", "_actors/supervisor.py",
        "            raise RuntimeError(\"the tasks of the sessions", "            str(\"the tasks of the sessions",
        CANCELLED, "test_a_supervisor_that_ends_by_itself_ends_the_server",
    ),
    # -- once and asks
    Mutant(
        "C26", "the key is claimed before the function runs", "server/once.py",
        "                found = await (self._claim() if record is None else self._recorded()) or record",
        "                found = await self._recorded() or record",
        ONCE, "test_a_crash_between_the_claim_and_the_record_is_an_error_that_says_so",
    ),
    Mutant(
        "C26", "a claim without a record runs nothing", "server/once.py",
        "                raise OnceInterrupted(\n", "                return None and (\n",
        ONCE, "test_a_crash_between_the_claim_and_the_record_is_an_error_that_says_so",
    ),
    Mutant(
        "C26", "a state that is sent during a run carries the claim", "server/once.py",
        "        done[self.key] = (self.name, _UNFINISHED)  # not earlier",
        "        done.pop(self.key, None)  # not earlier",
        ONCE, "test_a_state_that_was_sent_during_the_run_does_not_run_it_again_without_a_shared_store",
        (("server/once.py", "            del done[self.key]\n", "            done.pop(self.key, None)\n"),),
    ),
    Mutant(
        "C26", "a function that raised may run again", "server/once.py",
        "            del done[self.key]\n            self._release()\n", "            pass\n",
        ONCE, "test_a_function_that_raised_may_run_again",
    ),
    Mutant(
        "C26", "a claim whose function has not started is released", "server/once.py",
        "        except BaseException:  # cancelled; the function has not started\n            self._release()\n",
        "        except BaseException:  # cancelled; the function has not started\n",
        ONCE, "test_a_run_that_is_cancelled_before_the_function_starts_leaves_no_claim",
    ),
    Mutant(
        "C02", "a recorded answer is a checkpoint", "_actors/asks.py",
        "        await trio.lowlevel.checkpoint()  # a loop over recorded answers",
        "        # a loop over recorded answers",
        ANSWERS, "test_a_recorded_answer_is_a_checkpoint",
    ),
    Mutant(
        "C04", "a replay uses an answer for the question that was asked", "_actors/journal.py",
        "        if self.expected is None or self.expected.get(question.key) == question.id:\n", "        if True:\n",
        "tests/stateless/test_rounds.py",
        "test_a_question_that_is_worded_otherwise_when_it_is_run_again_is_asked_again",
    ),
    Mutant(
        "D26", "an unusable answer is asked for again", "_actors/asks.py",
        "                answer = MISSING\n                continue\n", "                raise\n",
        "tests/extensions/test_following.py", "test_an_answer_that_the_form_refuses_is_asked_for_again",
    ),
    Mutant(
        "D26", "it is asked for under a new key", "extensions/tasks/asks.py",
        "        while unique in self._shown:\n", "        while False:\n",
        "tests/extensions/test_tasks.py", "test_an_answer_that_does_not_fit_is_asked_for_again_under_a_new_key",
    ),
    # -- OAuth
    Mutant(
        "E06", "a renewal needs no discovery", "auth/client/binding.py",
        "    if need.refused or tokens is None or tokens.token_endpoint is None:\n", "    if True:\n",
        ACQUIRE, "test_a_renewal_needs_no_discovery",
    ),
    Mutant(
        "E07", "an outage keeps the refresh token", "auth/client/token_request.py",
        "    if reply.status == 429 or refused.error in _TEMPORARY:\n", "    if False:\n",
        ACQUIRE, "test_an_outage_keeps_the_refresh_token_and_asks_no_user",
    ),
    Mutant(
        "E07", "only invalid_grant discards the refresh token", "auth/client/acquire.py",
        '        if error.error == "invalid_grant":\n', "        if error.error:\n",
        ACQUIRE, "test_other_refusals_keep_the_refresh_token_until_the_user_has_signed_in",
    ),
    Mutant(
        "E09", "a sign-in belongs to the signer", "transports/oauth/token_source.py",
        "        await self._start(sign_in).wait()\n", "        await sign_in()\n",
        SIGN_IN, "test_a_sign_in_that_no_request_waits_for_still_serves_the_next_one",
    ),
    Mutant(
        "E11", "an empty path and a slash are equal", "auth/identifiers.py",
        "(one == other or _without_root(one) == _without_root(other))", "one == other",
        DISCOVERY, "test_an_issuer_with_an_empty_path_is_the_same_with_a_slash",
    ),
    Mutant(
        "E14", "an unknown key id causes one more fetch", "auth/server/keys.py",
        "        return Decision.FETCH if now - self.early >= self.pause else Decision.UNAVAILABLE\n",
        "        return Decision.UNKNOWN\n",
        KEYS, "test_a_key_that_is_published_right_after_a_fetch_is_fetched_at_once",
    ),
    Mutant(
        "E27", "a session that can get no task ends in place", "_actors/supervisor.py",
        "            session.end_asleep()\n            self._forget(session)\n\n    def check_room",
        "            raise\n\n    def check_room",
        "tests/actors/test_supervisor.py", "test_a_sleeping_session_that_can_get_no_task_ends_in_place",
    ),
    # -- the client's streams
    Mutant(
        "E17", "a stream has the limit of a plain answer", f"{HTTP_CLIENT}/streamable.py",
        "        return EventStream(self.http.config.max_reply, Retries(self.http.reconnect))\n",
        "        return EventStream(self.http.config.max_reply // 2, Retries(self.http.reconnect))\n",
        RETRY, "test_one_limit_for_an_answer_as_json_or_in_a_stream",
    ),
    Mutant(
        "E20", "a stream that lasted starts a new count", "transports/retry.py",
        "        if lasted:\n            self.reset()\n", "        if lasted:\n            pass\n",
        RETRY, "test_an_idle_stream_that_a_proxy_cuts_is_opened_again_as_often_as_needed",
    ),
    Mutant(
        "E21", "a connection that delivered something is no failure", f"{HTTP_CLIENT}/stream.py",
        "        if error is not None or not self._good:\n", "        if True:\n",
        RETRY, "test_a_polled_call_is_not_given_up_after_good_connections",
        (("transports/retry.py", "        elif delivered:\n", "        elif False:\n"),),
    ),
    Mutant(
        "E25", "headers are sent as UTF-8", f"{HTTP_CLIENT}/http.py",
        "                whole[name] = value ", "                whole.update({name: value}) ",
        RETRY, "test_an_event_id_that_is_not_ascii_is_sent_back_as_utf_8",
    ),
    Mutant(
        "E25", "an id that no header can hold is not sent", f"{HTTP_CLIENT}/stream.py",
        "        return value if _HEADER_VALUE.fullmatch(value) else None\n", "        return value or None\n",
        RETRY, "test_an_event_id_that_no_header_can_hold_is_not_sent",
    ),
    Mutant(
        "E25", "no exception leaves the reader of a stream", f"{HTTP_CLIENT}/streamable.py",
        "        except Exception as broken:  # noqa: BLE001 - includes",
        "        except KeyError as broken:  # noqa: BLE001 - includes",
        RETRY, "test_no_exception_leaves_the_reader_of_the_servers_own_stream",
    ),
]  # fmt: skip
