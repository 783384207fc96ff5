"""Mutants for handlers, what they ask and what they send (C03 to C08, C18, C21 to C25, C31)."""

from __future__ import annotations

from .mutant import Mutant

LENDING, LIFETIMES, TELLING = (
    "tests/actors/test_lending.py",
    "tests/server/test_lifetimes.py",
    "tests/server/test_notifications.py",
)
ANSWERS, ROUNDS = "tests/stateless/test_answers.py", "tests/stateless/test_rounds.py"
UNENCODABLE = "tests/server/test_unencodable.py"
STDIO = "tests/transports/test_stdio_server.py"
HANDLERS, LEND, ASKS, JOURNAL = "_actors/handlers.py", "_actors/lending.py", "_actors/asks.py", "_actors/journal.py"

SETTLED = "        self.settled, self._result, self._error = True, result, error\n"
READ_IN_A_STEP = (
    "_actors/future.py",
    SETTLED,
    f"{SETTLED}        if error is None and self.on_progress is not None:\n            self.on_progress(result)\n",
)
"""The machine settles a reply in a step, and there runs the function that reads it."""

MUTANTS = [
    # -- the task of a handler
    Mutant(
        "C05", "a Ctrl-C in a child of a handler is passed on", "_actors/router.py",
        "            pass_on_interrupt(error)\n", "",
        LENDING, "test_ctrl_c_in_a_child_task_of_a_handler_reaches_the_main_task",
    ),
    Mutant(
        "C05", "a Ctrl-C in a child of a tool is passed on", "server/features/tools.py",
        "            pass_on_interrupt(error)\n", "",
        LIFETIMES, "test_ctrl_c_in_a_child_task_of_user_code_reaches_the_main_task",
    ),
    Mutant(
        "C05", "a Ctrl-C in a background task is passed on", "_actors/background.py",
        '                pass_on_interrupt(error)\n                logger.exception("a background',
        '                logger.exception("a background',
        LIFETIMES, "test_ctrl_c_in_a_child_task_of_user_code_reaches_the_main_task",
    ),
    Mutant(
        "C05", "a Ctrl-C in a session function is passed on", "_actors/background.py",
        '            pass_on_interrupt(error)\n            logger.exception("the session',
        '            logger.exception("the session',
        LIFETIMES, "test_ctrl_c_in_a_child_task_of_user_code_reaches_the_main_task",
    ),
    Mutant(
        "C05", "a Ctrl-C around a stateless call is passed on", HANDLERS,
        "            pass_on_interrupt(error)\n", "",
        LIFETIMES, "test_ctrl_c_in_a_child_task_of_user_code_reaches_the_main_task",
    ),
    Mutant(
        "C06", "a task that is lent has the context of the call", LEND,
        "        task.name, task.context = call.name, context\n", "        task.name = call.name\n",
        LENDING, "test_await_frames_context_and_deadline_are_those_of_the_handler",
    ),
    Mutant(
        "C06", "debuggers see where a handler waits", LEND,
        "        return self._coroutine.cr_await\n", "        return None\n",
        LENDING, "test_await_frames_context_and_deadline_are_those_of_the_handler",
    ),
    Mutant(
        "C07", "a call has its deadline from the start", HANDLERS,
        "        scope = trio.CancelScope(deadline=now + limits.call_timeout)\n",
        "        scope = trio.CancelScope()\n",
        LENDING, "test_await_frames_context_and_deadline_are_those_of_the_handler",
    ),
    Mutant(
        "C07", "the timeout of a tool counts from its first line", "server/features/tools.py",
        "                    ctx._call.limit(entry.timeout)\n", "                    pass\n",
        LIFETIMES, "test_a_tool_sees_its_deadline_from_its_first_line",
    ),
    Mutant(
        "C07", "it counts after the wait for a slot, too", "server/features/tools.py",
        "            call.limit(call.soft if entry.timeout is None else entry.timeout)\n", "            pass\n",
        LIFETIMES, "test_a_tool_sees_its_deadline_from_its_first_line",
    ),
    Mutant(
        "C22", "a scope that is left open fails its handler", HANDLERS,
        "        except Exception as error:  # noqa: BLE001 - the call guard",
        "        except KeyError as error:  # noqa: BLE001 - the call guard",
        LENDING, "test_a_handler_that_leaves_a_cancel_scope_open_fails_alone",
    ),
    Mutant(
        "C22", "a nursery that is left open fails its handler", HANDLERS,
        "            abandon_nurseries()\n", "",
        LENDING, "test_a_handler_that_leaves_a_nursery_open_fails_alone",
    ),
    # -- background tasks
    Mutant(
        "C24", "background tasks end with their request", HANDLERS,
        "            call.end_tasks()\n", "            pass\n",
        LIFETIMES, "test_background_tasks_of_a_stateless_request_on_a_pipe_end_with_it",
    ),
    Mutant(
        "C24", "a task that had no turn yet ends with it", "_actors/background.py",
        " or (call is not None and call.over):", ":",
        LIFETIMES, "test_background_tasks_of_a_stateless_request_on_a_pipe_end_with_it",
    ),
    Mutant(
        "C24", "nothing is started for a request that is over", "server/session_handle.py",
        "        if self._call.over:\n", "        if False:\n",
        LIFETIMES, "test_background_tasks_of_a_stateless_request_on_a_pipe_end_with_it",
    ),
    # -- progress
    Mutant(
        "C21", "progress that is not sent is a checkpoint", "server/context.py",
        '                self._dropped("stale_progress")\n            await trio.lowlevel.checkpoint()\n',
        '                self._dropped("stale_progress")\n',
        TELLING, "test_progress_is_a_checkpoint",
    ),
    Mutant(
        "S4", "the notifications of one client take turns", ASKS,
        "                await turns.take(owner)\n", "                pass\n",
        "tests/actors/test_turns.py", "test_the_notifications_of_many_calls_of_one_client_take_turns",
    ),
    Mutant(
        "C21", "progress that is sent is a checkpoint", ASKS,
        "        await self.session.inbox.post(Notified(None if call is None else call.start.call, method, encoded))\n"
        "        await trio.lowlevel.checkpoint()\n",
        "        await self.session.inbox.post(Notified(None if call is None else call.start.call, method, encoded))\n",
        TELLING, "test_progress_is_a_checkpoint",
    ),
    Mutant(
        "C21", "progress that is held back is a checkpoint", "server/context.py",
        '            self._dropped("progress_rate")\n            await trio.lowlevel.checkpoint()\n',
        '            self._dropped("progress_rate")\n',
        TELLING, "test_progress_is_a_checkpoint",
    ),
    Mutant(
        "C25", "progress gets its token when it is sent", "server/context.py",
        "            call.held_back = params\n", "            call.held_back = call.with_token(params)\n",
        ROUNDS, "test_progress_that_was_held_back_carries_the_token_of_the_retry",
    ),
    Mutant(
        "C25", "a retry without a token gets no progress", HANDLERS,
        "                if call.held_back is not None and call.start.progress_token is not None:\n",
        "                if call.held_back is not None:\n",
        ROUNDS, "test_progress_that_was_held_back_carries_the_token_of_the_retry",
    ),
    Mutant(
        "C31", "progress is written at once", "transports/pipe/server.py",
        "        alone = not final or self.is_last is None or self.is_last()\n",
        "        alone = self.is_last is None or self.is_last()\n",
        STDIO, "test_progress_is_written_by_itself_before_the_result",
    ),
    Mutant(
        "C31", "a result is not sent in one chunk with progress", "transports/pipe/server.py",
        "            self.outbox.put(_PAUSE)\n", "            pass\n",
        STDIO, "test_a_result_waits_until_the_client_has_read_its_progress",
    ),
    Mutant(
        "C31", "a result waits until the progress is read", "transports/pipe/server.py",
        "            await pipe.drained()\n", "            await trio.lowlevel.checkpoint()\n",
        STDIO, "test_a_result_waits_until_the_client_has_read_its_progress",
    ),
    # -- texts that JSON cannot carry
    Mutant(
        "C18", "a text that cannot be encoded is an error by name", "_wire/jsonrpc.py",
        "        raise LoneSurrogate(error.object, error.start) from None", "        raise",
        UNENCODABLE, "test_a_text_that_cannot_be_encoded_is_an_error_that_names_its_source",
    ),
    Mutant(
        "C18", "a tool whose result cannot be encoded has failed", "server/methods.py",
        "            failed=failed,\n", "",
        UNENCODABLE, "test_a_text_that_cannot_be_encoded_is_an_error_that_names_its_source",
    ),
    Mutant(
        "C18", "a declaration has a JSON form", "server/registry.py",
        "            encode_value(entry.wire)", "            pass",
        UNENCODABLE, "test_what_no_list_can_show_is_refused_when_it_is_declared",
    ),
    Mutant(
        "C18", "the text of an error is escaped", "_wire/jsonrpc.py",
        "_ErrorBody(frame.code, escape_surrogates(frame.message), frame.data)",
        "_ErrorBody(frame.code, frame.message, frame.data)",
        "tests/wire/test_jsonrpc.py", "test_lone_surrogates_in_an_error_text_are_escaped",
    ),
    Mutant(
        "C18", "the text of a failed tool is escaped", "server/features/tools.py",
        '"text": escape_surrogates(text)}], "isError": True}', '"text": text}], "isError": True}',
        LIFETIMES, "test_an_error_text_with_a_lone_surrogate_is_escaped",
    ),
    Mutant(
        "C18", "the text of a failed callback is escaped", "_wire/jsonrpc.py",
        "_ErrorBody(frame.code, escape_surrogates(frame.message), frame.data)",
        "_ErrorBody(frame.code, frame.message, frame.data)",
        "tests/client/test_hostile.py",
        "test_text_of_a_callback_that_cannot_be_encoded_does_not_end_the_connection",
    ),
    Mutant(
        "C18", "a result is encoded by the task of its handler", "_actors/router.py",
        "            result = msgspec.Raw(encode_value(wire))\n", "            return Answered(wire, is_error)\n",
        "tests/client/test_hostile.py",
        "test_text_of_a_callback_that_cannot_be_encoded_does_not_end_the_connection",
    ),
    # -- asking
    Mutant(
        "C03", "answers are recorded by key and question", JOURNAL,
        "        self.answers[question.id] = list(answer)\n",
        '        self.answers[question.key.partition("-")[0]] = [question.id, *answer]\n',
        ANSWERS, "test_one_key_for_two_questions_is_replayed_to_the_end",
        (
            (
                JOURNAL,
                "        recorded = self.answers.get(question.id)\n",
                '        kept = self.answers.get(question.key.partition("-")[0])\n'
                "        recorded = kept[1:] if kept and kept[0] == question.id else None\n",
            ),
        ),
    ),
    Mutant(
        "C23", "an answer is read by the task that asked", ASKS,
        "params, Reply(), False,", "params, Reply(on_progress=read), False,",
        ANSWERS, "test_a_form_that_raises_does_not_end_the_session_of_a_pipe",
        (READ_IN_A_STEP,),
    ),
    Mutant(
        "C23", "an answer is read there in a session, too", ASKS,
        "reply = None if call is None else call.start.call, reply or Reply()",
        "reply = None if call is None else call.start.call, reply or Reply(on_progress=read)",
        ANSWERS, "test_in_a_session_a_form_that_raises_fails_the_tool_only", (READ_IN_A_STEP,),
    ),
    Mutant(
        "C23", "an exception of a form makes the answer unusable", ASKS,
        "            except Exception as error:  # noqa: BLE001 - a form may run any code\n",
        "            except ValueError as error:\n",
        ANSWERS, "test_an_answer_that_makes_the_form_raise_is_asked_for_again",
    ),
    Mutant(
        "C23", "a form describes an object", "server/asks.py",
        '    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):\n',
        "    if False:\n",
        ANSWERS, "test_an_invalid_form_is_an_error_at_the_first_ask",
    ),
    Mutant(
        "C23", "a form is checked before it is asked", "server/asks.py",
        "    checker = Checker(schema)\n\n    def read(content: Mapping[str, Any]) -> Any:\n",
        "\n    def read(content: Mapping[str, Any]) -> Any:\n        checker = Checker(schema)\n",
        ANSWERS, "test_an_invalid_form_is_an_error_at_the_first_ask",
    ),
    Mutant(
        "C08", "a result of once is no session", "server/once.py",
        '            store.marks.done("once", self.mark, value, ttl, owner=session.owner)\n',
        '            store.sessions.put(f"once {self.mark}", 0, value)\n',
        ROUNDS, "test_used_states_and_results_of_once_evict_no_session",
    ),
    Mutant(
        "C08", "each kind of mark has its own table", "stores/_records.py",
        "        self._kinds: dict[str, Records] = {\n",
        '        sizes = dict.fromkeys(sizes, limits.mark_bytes)\n'
        '        self._kinds: dict[str, Records] = dict.fromkeys((*sizes, "result"), Records(limits.marks)) or {\n',
        "tests/stores/test_marks.py", "test_marks_evict_no_session_and_no_mark_of_another_kind",
    ),
]  # fmt: skip
