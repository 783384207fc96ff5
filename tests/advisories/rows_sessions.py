"""Mutants for the guards of durable sessions."""

from __future__ import annotations

from .mutant import HTTP, Mutant

DURABLE, DIRECTORY = "tests/server/test_durable_sessions.py", "tests/stores/test_directory.py"
ACTIVATION = f"{HTTP}/endpoint/activation.py"
IDS = "_actors/session_ids.py"
FOR_ALL = (IDS, "(text + identity).encode()", "text.encode()")

MUTANTS = [
    Mutant(
        "V23", "a session id belongs to a client", *FOR_ALL,
        "tests/cluster/test_two_workers.py", "test_a_stranger_changes_nothing_of_a_session_without_a_home",
    ),
    Mutant(
        "V23", "what is kept of a session is its owner's", ACTIVATION,
        "        if record is None or era is None or head is None or record.identity != head.identity:",
        "        if record is None or era is None or head is None:",
        DURABLE, "test_a_stored_session_belongs_to_the_principal_that_opened_it",
        ((ACTIVATION, " or link.closed or link.identity != head.identity:", " or link.closed:"), FOR_ALL),
    ),
    Mutant(
        "S7", "stored sessions count for their principal", ACTIVATION,
        "        self.parts.admission.check_sessions(record.identity)", "        pass",
        DURABLE, "test_stored_sessions_do_not_pass_the_limit_of_their_principal",
    ),
    Mutant(
        "V23", "a call without a principal does not run again", ACTIVATION,
        "may_rerun=head.principal is not None or not record.identity", "may_rerun=True",
        "tests/cluster/test_two_workers.py", "test_a_call_that_may_run_twice_runs_again_at_the_new_home",
    ),
    Mutant(
        "V23", "a stranger does not prolong a stored session", "_actors/homes.py",
        "limits.idle_timeout if claimed.left is None else claimed.left", "limits.idle_timeout",
        DURABLE, "test_a_stranger_who_names_a_stored_session_does_not_prolong_it", (FOR_ALL,),
    ),
    Mutant(
        "R4", "a session that was just deleted is not found again", ACTIVATION,
        " or link.closed or link.identity", " or link.identity",
        DURABLE, "test_requests_for_a_session_that_was_just_deleted_find_none",
    ),
    Mutant(
        "V23", "an id that was made up never reaches the store", IDS,
        "    return text.isascii() and compare_digest(_with_mac(text[:_RANDOM], secret, identity), text)",
        "    return True",
        DURABLE, "test_an_invented_id_never_reaches_the_store",
    ),
    Mutant(
        "R3", "initialize is answered when its record is stored", "_actors/homes.py",
        "            await store.flush()\n", "            pass\n",
        DURABLE, "test_initialize_is_answered_when_its_record_is_stored",
    ),
    Mutant(
        "R4", "requests wait while their session is passivated", "_actors/homes.py",
        "        while (moving := self.moving.get(session_id)) is not None:",
        "        while (moving := None) is not None:",
        DURABLE, "test_requests_during_passivation_wait_and_are_served",
    ),
    Mutant(
        "R7", "a stream is stored before its client gets a cursor", f"{HTTP}/endpoint/links.py",
        "            await self.parts.store.prepare_cursor(StreamKey(self.session.id, name))\n", "            pass\n",
        DURABLE, "test_a_stream_is_stored_before_its_cursor_is_sent",
    ),
    Mutant(
        "R4", "an activation ends in time", "_actors/homes.py",
        "with trio.fail_after(self.runtime.supervisor.limits.call_timeout):", "with trio.CancelScope():",
        DURABLE, "test_a_session_function_that_hangs_does_not_hold_its_session_for_ever",
    ),
    Mutant(
        "R12", "a process that drains claims nothing", "_actors/homes.py",
        "        supervisor.check_room(owner)  # also refuses", "        pass  # also refuses",
        DURABLE, "test_a_draining_process_claims_nothing",
    ),
    Mutant(
        "S7", "stored sessions are counted by owner", "stores/_sqlite_sessions.py",
        "FROM sessions GROUP BY owner HAVING COUNT(expires) > 0 ORDER BY COUNT(*) DESC, owner LIMIT 1\n",
        "FROM sessions WHERE expires IS NOT NULL ORDER BY expires LIMIT 1\n",
        DIRECTORY, "test_the_largest_owner_loses_its_oldest_released_session",
    ),
    Mutant(
        "S7", "session records are counted by owner", "_actors/homes.py",
        "owner=session.owner, pinned=pinned", "pinned=pinned",
        "tests/transports/test_http_admission.py", "test_one_address_cannot_push_the_records_of_other_sessions_out",
    ),
    Mutant(
        "V08", "a saved value is bounded", "server/session_handle.py",
        "        if len(data) > MAX_SAVED:", "        if False:",
        DURABLE, "test_too_large_a_value_is_not_saved",
    ),
    Mutant(
        "V08", "a deleted session is gone when that is answered", f"{HTTP}/endpoint/stateful.py",
        "            await homes.delete(http.session)\n", "            pass\n",
        DURABLE, "test_a_deleted_session_is_gone_before_the_answer",
    ),
]  # fmt: skip
