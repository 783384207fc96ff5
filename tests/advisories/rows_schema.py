"""Mutants for large requests (S2): URIs, subscriptions and values that are checked against schemas."""

from __future__ import annotations

from .mutant import Mutant

LOOP, ACCESS, TYPES = "tests/faults/test_loop.py", "tests/server/test_access.py", "tests/schema/test_types.py"

LENIENT, LENIENT_TESTS = "_schema/lenient.py", "tests/schema/test_lenient.py"

MUTANTS = [
    Mutant(
        "H2", "a text inside of an argument holds a bounded number of values", LENIENT,
        "if self._steps + nodes > MAX_STEPS or", "if",
        LENIENT_TESTS, "test_a_hostile_text_is_refused_without_being_decoded",
    ),
    Mutant(
        "H2", "the texts of one call share a budget", LENIENT,
        "        self._steps += 1\n", "",
        LENIENT_TESTS, "test_many_texts_share_one_budget",
    ),
    Mutant(
        "H2", "unions are looked at within the budget", LENIENT,
        "        self._steps += len(members)\n", "",
        LENIENT_TESTS, "test_a_long_list_of_values_of_a_wide_union_takes_bounded_work",
    ),
    Mutant(
        "H2", "a text with a key twice is refused", LENIENT,
        "or text.count(\":\") != msgspec.json.encode(value).count(b\":\"):", ":",
        LENIENT_TESTS, "test_a_spelling_is_read_as_a_person_would_or_refused",
    ),
    Mutant(
        "H2", "a string is never changed where strings are allowed", LENIENT,
        "        if facts.any_text or text in facts.texts:\n", "        if text in facts.texts:\n",
        LENIENT_TESTS, "test_no_string_parameter_is_ever_turned_into_something_else",
    ),
    Mutant(
        "H2", "a schema is inlined up to a size", "_schema/listing.py",
        "msgspec.json.encode(schema)) > MAX_INLINED:\n", "msgspec.json.encode(schema)) > 2**20:\n",
        "tests/schema/test_hosts.py", "test_a_schema_that_would_be_large_keeps_its_definitions",
    ),
    Mutant(
        "S2", "a URI is normalised once", "_uri/match.py",
        "        if self._folded is None:", "        if True:",
        "tests/uri/test_template.py", "test_a_uri_is_normalised_once_and_only_if_a_prefix_fits",
    ),
    Mutant(
        "S2", "the literal prefix goes first", "_uri/match.py",
        "if not subject.uri.startswith(self.prefix) or not (folded := subject.folded):",
        "if not (folded := subject.folded):",
        "tests/uri/test_template.py", "test_a_uri_is_normalised_once_and_only_if_a_prefix_fits",
    ),
    Mutant(
        "S2", "query parameters are bounded", "_uri/match.py",
        'if query.count("&") >= MAX_PARAMETERS:', "if False:",
        "tests/uri/test_template.py", "test_a_uri_with_too_many_query_parameters_matches_nothing",
    ),
    Mutant(
        "S2", "the URIs of a listen are bounded together", "server/features/listen.py",
        "if sum(map(len, uris)) > MAX_URI_CHARACTERS:", "if False:",
        ACCESS, "test_the_uris_of_one_listen_request_are_bounded_together",
    ),
    Mutant(
        "S2", "a listen with many URIs lets others run", "server/features/listen.py",
        "                    await trio.lowlevel.checkpoint()\n", "",
        ACCESS, "test_a_listen_request_with_many_uris_lets_other_tasks_run",
    ),
    Mutant(
        "S2", "long URIs of a batch take turns", "server/features/resources.py",
        "        if len(uri) <= LONG_URI:", "        if True:",
        LOOP, "test_a_large_request_does_not_block_the_loop",
    ),
    Mutant(
        "S2", "reading stops when the list of errors is full", "_schema/containers.py",
        "                if faults.full:", "                if False:",
        TYPES, "test_reading_stops_when_no_further_fault_would_be_reported",
    ),
    Mutant(
        "D03", "an awaitable never counts as true", "server/features/scopes.py",
        "        if inspect.isawaitable(verdict):", "        if False:",
        ACCESS, "test_an_awaitable_never_counts_as_true",
    ),
    Mutant(
        "D03", "an async predicate is refused", "server/features/scopes.py",
        "if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):", "if False:",
        ACCESS, "test_an_async_predicate_is_refused",
    ),
    Mutant(
        "D03", "a subscription ends with the right to read", "server/features/subscriptions.py",
        '        if may_read(self.resources, self.session.data["subscriber"], self.uri):', "        if True:",
        ACCESS, "test_a_subscription_ends_when_the_resource_is_hidden_or_removed",
    ),
]  # fmt: skip
