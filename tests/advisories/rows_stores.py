"""Mutants for the guards of tasks, and for the fair shares of the tables of a store."""

from __future__ import annotations

from .mutant import HTTP, Mutant

TASKS = "tests/extensions/test_tasks_http.py"
OWNERS, SQLITE = "tests/stores/test_owners.py", "tests/stores/test_sqlite.py"
RECORDS = "stores/_records.py"

RESULTS, RESULT_TESTS = "server/features/large_results.py", "tests/server/test_result_forms.py"

MUTANTS = [
    Mutant(
        "H1", "a large result belongs to its session", RESULTS,
        '("session", session)', '("session", "")',
        RESULT_TESTS, "test_neg_another_session_does_not_find_the_result",
    ),
    Mutant(
        "H1", "a large result belongs to its principal", RESULTS,
        "None if principal is None else principal.key)", "None)",
        RESULT_TESTS, "test_neg_another_principal_does_not_find_the_result",
    ),
    Mutant(
        "H1", "large results are counted by owner", RESULTS,
        "KEPT_FOR, owner=session.owner)", "KEPT_FOR)",
        RESULT_TESTS, "test_one_owner_cannot_push_the_results_of_others_out",
    ),
    Mutant(
        "H1", "large results expire", RESULTS,
        "msgspec.json.encode(contents), KEPT_FOR,", "msgspec.json.encode(contents), 1e9,",
        RESULT_TESTS, "test_a_result_is_not_found_after_its_time",
    ),
    Mutant(
        "S19", "a running task needs the scopes of its tool", "extensions/tasks/extension.py",
        "            require_scopes(ctx, run.scopes)\n", "",
        TASKS, "test_neg_a_task_needs_the_scopes_of_its_tool",
    ),
    Mutant(
        "S19", "a stored task needs the scopes of its tool", "extensions/tasks/extension.py",
        "        require_scopes(ctx, stored.scopes)\n", "",
        TASKS, "test_neg_a_task_needs_the_scopes_of_its_tool",
    ),
    Mutant(
        "S7", "a client leaves places of tasks to others", "extensions/tasks/extension.py",
        ", owners=Owners(several=True)", "",
        TASKS, "test_one_client_cannot_take_every_place_of_running_tasks",
    ),
    Mutant(
        "S7", "places of tasks are counted by owner", "extensions/tasks/running.py",
        "            if not await self.places.wait(exchange.owner,", "            if not await self.places.wait(\"\",",
        TASKS, "test_clients_that_wait_for_a_place_of_a_task_get_it_in_turn",
    ),
    Mutant(
        "S7", "stored tasks are counted by owner", "extensions/tasks/run.py",
        "            self.runtime.store.tasks, self.exchange.owner, note\n",
        "            self.runtime.store.tasks, \"\", note\n",
        TASKS, "test_one_client_cannot_push_the_results_of_others_out",
    ),
    Mutant(
        "S7", "records of a store are counted by owner", RECORDS,
        "        gone = self._shares.add(kept.owner, id,", "        gone = self._shares.add(\"\", id,",
        OWNERS, "test_one_owner_cannot_push_the_entries_of_others_out",
    ),
    Mutant(
        "S7", "events of a store are counted by owner", "stores/_streams.py",
        "        self._shares.add(owner or stream.key.session, stream,", "        self._shares.add(\"\", stream,",
        OWNERS, "test_one_owner_cannot_push_the_events_of_others_out",
    ),
    Mutant(
        "S7", "streams of a store are counted by owner", "stores/_streams.py",
        "return next(of_largest, None) or next(iter(self._ended))\n", "return next(iter(self._ended))\n",
        OWNERS, "test_one_owner_cannot_push_the_streams_of_others_out",
    ),
    Mutant(
        "S7", "large records count for more", RECORDS,
        "        return 1 + int(len(data) * self._most / self._most_bytes)\n", "        return 1\n",
        OWNERS, "test_an_owner_is_large_by_its_bytes_too",
    ),
    Mutant(
        "S7", "used states are counted by owner", "_actors/parking.py",
        "self._used_shares.add(owner, state.id)", "self._used_shares.add(\"\", state.id)",
        "tests/stateless/test_rounds.py", "test_one_client_cannot_make_the_used_states_of_others_valid_again",
    ),
    Mutant(
        "S7", "marks of used states are counted by owner", "_actors/parking.py",
        "            self.marks.done(\"state\", _mark_of(start), _DONE, self.ttl, owner=owner)\n",
        "            self.marks.done(\"state\", _mark_of(start), _DONE, self.ttl)\n",
        "tests/stateless/test_rounds.py", "test_one_client_cannot_push_the_marks_of_others_out",
    ),
    Mutant(
        "S7", "a client leaves places of listeners to others", f"{HTTP}/endpoint/stateless.py",
        ", owners=Owners(several=True)", "",
        "tests/stateless/test_listening.py", "test_one_client_cannot_take_every_place_of_listeners",
    ),
    # -- durability
    Mutant(
        "C30", "a database in memory is refused", "stores/_sqlite_file.py",
        '        if os.fspath(path) in ("", ":memory:"):\n', "        if False:\n",
        SQLITE, "test_a_database_that_is_not_durable_is_refused_with_a_hint",
    ),
    Mutant(
        "C30", "the URL of a database in memory is refused", "stores/_sqlite_file.py",
        '        if os.fspath(path) in ("", ":memory:"):\n', "        if False:\n",
        "tests/stores/test_memory.py", "test_the_url_of_a_database_in_memory_is_refused_with_a_hint",
    ),
    Mutant(
        "C30", "a removed file is noticed while nothing is written", "stores/sqlite.py",
        "                if not await trio.to_thread.run_sync(self._file.is_in_place, limiter=self._read_thread):\n",
        "                if False:\n",
        SQLITE, "test_a_removed_file_is_reported_and_replaced_by_an_empty_one",
    ),
    Mutant(
        "C30", "a commit notices a removed file", "stores/_sqlite_file.py",
        "        if not self.is_in_place():\n", "        if False:\n",
        SQLITE, "test_a_commit_notices_that_the_file_was_removed",
    ),
    Mutant(
        "C30", "a file in place of the store is left alone", "stores/_sqlite_file.py",
        "        if self._found() not in (None, self._identity):\n", "        if False:\n",
        SQLITE, "test_a_file_put_in_place_of_the_store_is_left_alone",
    ),
]  # fmt: skip
