"""Mutants for the places of calls: worker threads and the limits of tools."""

from __future__ import annotations

from .mutant import Mutant

PLACES = "tests/server/test_places.py"

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
]  # fmt: skip
