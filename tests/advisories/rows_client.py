"""Guards of the client against the servers that it talks to."""

from __future__ import annotations

from tests.advisories.mutant import Mutant

BUDGET = "tests/schema/test_budget.py"

MUTANTS = [
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
        "            if total > limit:", "            if False:",
        BUDGET, "test_a_value_over_the_budget_is_a_fault",
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
]  # fmt: skip
