"""Mutants for defects of the server that were repaired: calls and their time limits, declarations, extensions."""

from __future__ import annotations

from .mutant import Mutant

LIFETIMES, OPTIONS, PLACES = (
    "tests/server/test_lifetimes.py",
    "tests/server/test_options.py",
    "tests/server/test_places.py",
)
TASKS, TASKS_HTTP = "tests/extensions/test_tasks.py", "tests/extensions/test_tasks_http.py"
APPS, SKILLS = "tests/extensions/test_apps.py", "tests/extensions/test_skills.py"
LISTENING = "tests/stateless/test_listening.py"
TOOLS, APP = "server/features/tools.py", "server/app.py"

MUTANTS = [
    # -- texts that JSON cannot carry
    Mutant(
        "D01", "progress is encoded when it is held back", "server/context.py",
        "            encode_value(params)  # the handler gets the error, not the code that sends it later\n", "",
        LIFETIMES, "test_held_back_progress_that_cannot_be_encoded_is_an_error_of_the_handler",
    ),
    Mutant(
        "D02", "the status message of a task is escaped", "extensions/tasks/asks.py",
        'encodable(f"{message} ({numbers})")', 'f"{message} ({numbers})"',
        TASKS, "test_a_task_whose_texts_cannot_be_encoded_ends_and_frees_its_slot",
    ),
    Mutant(
        "D02", "the error text of a task is escaped", "_wire/jsonrpc.py",
        "_ErrorBody(frame.code, escape_surrogates(frame.message), frame.data)",
        "_ErrorBody(frame.code, frame.message, frame.data)",
        TASKS, "test_a_task_whose_texts_cannot_be_encoded_ends_and_frees_its_slot",
    ),
    # -- time limits
    Mutant(
        "D06", "the time limit starts with the function", TOOLS,
        "                    ctx._call.limit(entry.timeout)\n",
        "                    ctx._call.scope.deadline = ctx._call.began + entry.timeout\n",
        LIFETIMES, "test_the_timeout_of_a_tool_starts_with_its_function",
    ),
    Mutant(
        "D24", "the time limit is stopped while a call waits for a place", TOOLS,
        "            call.scope.deadline = inf  # waiting for a slot",
        "            call.limit(entry.timeout or call.soft)  # waiting for a slot",
        LIFETIMES, "test_the_timeout_of_a_tool_does_not_count_the_wait_for_a_slot",
    ),
    Mutant(
        "D24", "the time limit starts when a place is taken", TOOLS,
        "            call.limit(call.soft if entry.timeout is None else entry.timeout)\n",
        "            call.scope.deadline = call.began + (call.soft if entry.timeout is None else entry.timeout)\n",
        LIFETIMES, "test_the_timeout_of_a_tool_does_not_count_the_wait_for_a_slot",
    ),
    Mutant(
        "D24", "waiting for a place has its own limit", TOOLS,
        "            with trio.move_on_after(call.soft) as waiting:\n",
        "            with trio.move_on_after(inf) as waiting:\n",
        LIFETIMES, "test_a_call_that_waits_too_long_for_a_slot_is_overloaded",
    ),
    # -- places
    Mutant(
        "D09", "requests without a session take turns by their caller", TOOLS,
        "caller_of(ctx) if isinstance(session, Exchange) else session.id)", "id(ctx))",
        TASKS_HTTP, "test_a_serial_tool_takes_one_call_of_a_caller_at_a_time",
    ),
    Mutant(
        "D27", "a call gives its place back while it waits for the user", "_actors/call.py",
        "            give_back(self.places)\n", "",
        PLACES, "test_a_call_of_a_session_holds_no_place_while_the_user_is_asked",
    ),
    Mutant(
        "D27", "a call takes its place again after the answer", "_actors/call.py",
        "                await take_again(self.places, patience=patience)\n", "                pass\n",
        PLACES, "test_an_answered_call_takes_its_place_again",
    ),
    Mutant(
        "D27", "a call that gives up asking needs its place", "_actors/places.py",
        "        if not place.held:\n            raise Overloaded(\"the place of this call",
        "        if not place.held:\n            str(\"the place of this call",
        PLACES, "test_a_handler_that_gives_up_asking_does_not_go_on_without_its_place",
        (("_actors/places.py", "while it waited for the user\", retry_after=1)", "while it waited for the user\")"),),
    ),
    # -- declarations
    Mutant(
        "D08", "a tool is refused before its page is added", APP,
        "        for extension in new:\n            self.check_extension(extension)\n", "",
        OPTIONS, "test_a_tool_that_is_refused_while_serving_adds_no_extension",
    ),
    Mutant(
        "D08", "an extension is checked before it is added", APP,
        "        for extension in new:\n            self.check_extension(extension)\n", "",
        OPTIONS, "test_a_tool_that_is_refused_while_serving_adds_no_extension",
        ((APP, "        self.check_extension(extension)\n        self.extensions", "        self.extensions"),),
    ),
    Mutant(
        "D08", "the name of a tool is checked before its extension is added", APP,
        "        self.tools.registry.check_free(entry.name)\n", "",
        OPTIONS, "test_a_tool_whose_name_is_taken_adds_no_extension",
    ),
    Mutant(
        "D08", "an extension is added after its options are accepted", APP,
        "        entry = replace(entry, extra=extra)\n",
        "        entry = replace(entry, extra=extra)\n        for extension in new:\n"
        "            self.add_extension(extension)\n        new = []\n",
        OPTIONS, "test_a_refused_option_of_an_extension_adds_nothing",
    ),
    Mutant(
        "D08", "every extension is checked before one is included", "server/composition.py",
        "    for extension in new:\n        into.check_extension(extension)\n", "",
        OPTIONS, "test_an_include_that_is_refused_while_serving_changes_nothing",
    ),
    # -- extensions
    Mutant(
        "D13", "a refused listen request ends what extensions began", "server/features/listen.py",
        "            ends.callback(each.begin(tell))\n", "            each.begin(tell)\n",
        LISTENING, "test_a_listen_request_that_fails_half_way_leaves_no_subscription",
    ),
    Mutant(
        "D13", "a refused listen request ends its subscription to lists", "server/features/listen.py",
        "ends.callback(session.runtime.bus.subscribe(lists, list_changed).close)",
        "session.runtime.bus.subscribe(lists, list_changed)",
        LISTENING, "test_a_listen_request_that_fails_half_way_leaves_no_subscription",
    ),
    Mutant(
        "D13", "a refused listen request ends its subscription to resources", "server/features/listen.py",
        "ends.callback(session.runtime.bus.subscribe(map(topic, uris), changed).close)",
        "session.runtime.bus.subscribe(map(topic, uris), changed)",
        LISTENING, "test_a_listen_request_that_fails_half_way_leaves_no_subscription",
    ),
    Mutant(
        "D14", "a parameter with a default gets no context", "extensions/apps/extension.py",
        "        if p.default is p.empty and p.kind in", "        if p.kind in",
        APPS, "test_a_page_function_gets_the_context_only_where_it_asks_for_it",
    ),
    Mutant(
        "D14", "an annotated parameter gets the context", "extensions/apps/extension.py",
        "        if is_context(p.annotation) or str(p.annotation).partition(\"[\")[0] == Context.__name__\n",
        "        if False\n",
        APPS, "test_a_page_function_gets_the_context_only_where_it_asks_for_it",
    ),
]  # fmt: skip
