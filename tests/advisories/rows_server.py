"""Mutants for defects of the server that were repaired: calls, declarations, extensions, and what is open once."""

from __future__ import annotations

from .mutant import Mutant

LIFETIMES, OPTIONS, PLACES = (
    "tests/server/test_lifetimes.py",
    "tests/server/test_options.py",
    "tests/server/test_places.py",
)
SQLITE = "tests/stores/test_sqlite.py"
TASKS, TASKS_HTTP = "tests/extensions/test_tasks.py", "tests/extensions/test_tasks_http.py"
APPS, SKILLS = "tests/extensions/test_apps.py", "tests/extensions/test_skills.py"
LISTENING = "tests/stateless/test_listening.py"
TOOLS, APP, CHECKS = "server/features/tools.py", "server/app.py", "server/features/options.py"
SETTINGS, OF_SETTINGS = "_settings.py", "tests/test_settings.py"
CATALOG, FILES = "extensions/skills/catalog.py", "test_a_file_that_vanishes_during_a_look_is_not_there"
TOOL_OPTION = "test_a_tool_option_that_cannot_be_meant_is_refused"
SERVER_OPTION = "test_a_server_option_that_cannot_be_meant_is_refused"

MUTANTS = [
    # -- texts that JSON cannot carry
    Mutant(
        "D01", "progress is encoded when it is held back", "server/context.py",
        "            encode_value(params)  # the handler gets the error, not the code that sends it later\n", "",
        LIFETIMES, "test_held_back_progress_that_cannot_be_encoded_is_an_error_of_the_handler",
    ),
    Mutant(
        "D02", "the status message of a task is escaped", "extensions/tasks/asks.py",
        'escape_surrogates(f"{message} ({numbers})")', 'f"{message} ({numbers})"',
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
        "session_of(ctx) or caller_of(ctx))", "id(ctx))",
        TASKS_HTTP, "test_a_serial_tool_takes_one_call_of_a_caller_at_a_time",
    ),
    Mutant(
        "D09", "a task takes turns with the calls of its connection", "server/features/scopes.py",
        "        session = session.origin  # a task belongs", "        pass  # a task belongs",
        TASKS, "test_a_task_of_a_serial_tool_takes_turns_with_the_calls_of_its_connection",
    ),
    Mutant(
        "D27", "a call gives its place back while it waits for the user", "_actors/call.py",
        "            give_back(self.places)\n", "",
        PLACES, "test_a_call_of_a_session_holds_no_place_while_the_user_is_asked",
    ),
    Mutant(
        "D27", "a call takes its place again after the answer", "_actors/call.py",
        "                await take_again(self.places, timeout=timeout)\n", "                pass\n",
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
        ((APP, "        self.check_extension(extension)\n        routes =", "        routes ="),),
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
        "D08", "an extension that refuses its server is not added", APP,
        "            self.extensions.remove(extension)\n", "",
        SKILLS, "test_skills_whose_place_is_taken_are_not_added",
    ),
    Mutant(
        "D08", "the methods of an extension that refuses are not added", APP,
        "            self.router.routes.clear()\n            self.router.routes.update(routes)\n", "",
        SKILLS, "test_skills_whose_place_is_taken_are_not_added",
    ),
    Mutant(
        "D08", "the places of skills are checked before one is taken", "extensions/skills/extension.py",
        "                server._app.resources.registry.check_free(uri)\n", "                pass\n",
        SKILLS, "test_skills_whose_place_is_taken_are_not_added",
    ),
    Mutant(
        "D08", "a session function is checked before it is set", APP,
        "        self.router.check(row)\n", "",
        OPTIONS, "test_a_session_function_that_is_refused_while_serving_is_not_set",
    ),
    Mutant(
        "D08", "every extension is checked before one is included", "server/composition.py",
        "    for extension in new:\n        into.check_extension(extension)\n", "",
        OPTIONS, "test_an_include_that_is_refused_while_serving_changes_nothing",
    ),
    Mutant(
        "D15", "the value of an option is checked", CHECKS,
        "                _CHECKS[option](option, value)\n", "                pass\n",
        OPTIONS, "test_a_resource_option_that_cannot_be_meant_is_refused",
    ),
    Mutant(
        "D15", "an option must exist", CHECKS,
        "            if option not in known:\n", "            if option not in _CHECKS:\n",
        OPTIONS, "test_an_option_of_a_prompt_that_does_not_exist_is_refused",
    ),
    Mutant(
        "D15", "a timeout is positive", CHECKS,
        "or math.isnan(value) or value <= 0:", "or math.isnan(value):", OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "a timeout is a number", CHECKS,
        "    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:\n",
        "    if not float(value) > 0:\n",
        OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "a limit is at least one", CHECKS,
        "is not int or value < least:", "is not int:", OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "required capabilities are a list", CHECKS,
        "    if isinstance(value, str):\n        raise DeclarationError(f\"{name} is a list of capabilities",
        "    if False:\n        raise DeclarationError(f\"{name} is a list of capabilities",
        OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "a required capability exists", CHECKS,
        "        if capability not in CLIENT_CAPABILITIES:\n", "        if False:\n", OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "a predicate is a function", "server/features/scopes.py",
        "    plain = visible\n", "    if visible is True:\n        return\n    plain = visible\n", OPTIONS, TOOL_OPTION,
    ),
    Mutant(
        "D15", "the numbers of a server are at least one", "server/checks.py",
        '    check_count("threads", threads)\n', "", OPTIONS, SERVER_OPTION,
    ),
    Mutant(
        "D15", "the texts of a server are strings", "server/checks.py",
        "            check_text(argument, text)\n", "            pass\n", OPTIONS, SERVER_OPTION,
    ),
    Mutant(
        "D15", "a page size is for a list that exists", "server/registry.py",
        "for name in page_size if name not in LISTS):\n", "for name in page_size if False):\n",
        OPTIONS, SERVER_OPTION,
    ),
    # -- settings
    Mutant(
        "D15", "a setting is of its type", SETTINGS,
        "    if not isinstance(value, origin or kind):\n        raise _Mismatch(value, kind)\n", "",
        OF_SETTINGS, "test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_setting",
    ),
    Mutant(
        "D15", "a value that may be a secret is not repeated", SETTINGS,
        "    if value is None or (_is_public(kind) and isinstance(value, str | int | float)):\n",
        "    if value is None or isinstance(value, str | int | float):\n",
        OF_SETTINGS, "test_a_text_that_may_be_a_secret_is_not_repeated",
    ),
    Mutant(
        "D15", "a number that may be a secret is not repeated", SETTINGS,
        "    if value is None or (_is_public(kind) and isinstance(value, str | int | float)):\n",
        "    if value is None or isinstance(value, int) or (_is_public(kind) and isinstance(value, str | float)):\n",
        OF_SETTINGS, "test_a_number_that_may_be_a_secret_is_not_repeated",
    ),
    Mutant(
        "D15", "a wrong auth= is not repeated", "server/serve.py",
        "not a {type(auth).__name__}", "not {auth!r}",
        OF_SETTINGS, "test_a_text_that_may_be_a_secret_is_not_repeated",
    ),
    Mutant(
        "D15", "a URL with a password is not repeated", "auth/server/config.py",
        '"a URL with @" if "@" in url else ', "",
        OF_SETTINGS, "test_a_text_that_may_be_a_secret_is_not_repeated",
    ),
    Mutant(
        "D15", "a list may be any collection", SETTINGS,
        "    if origin in (tuple, frozenset) and _is_collection(value):\n",
        "    if origin in (tuple, frozenset) and isinstance(value, origin):\n",
        OF_SETTINGS, "test_a_list_may_be_any_collection_and_is_copied",
    ),
    Mutant(
        "D15", "one text is no list", SETTINGS,
        " and not isinstance(value, str | bytes)", "",
        OF_SETTINGS, "test_a_collection_is_converted_to_the_declared_kind",
    ),
    Mutant(
        "D15", "a choice is stored as its text", SETTINGS,
        "            return each  # not a sub", "            return value  # not a sub",
        OF_SETTINGS, "test_a_choice_may_be_a_member_of_an_enumeration",
    ),
    Mutant(
        "D15", "a text is stored as a plain string", SETTINGS,
        "        return str.__str__(value)", "        return value",
        OF_SETTINGS, "test_a_text_is_stored_as_a_plain_string",
    ),
    Mutant(
        "D15", "a converted value is stored", SETTINGS,
        "            _set(settings, name, value)\n", "            pass\n",
        OF_SETTINGS, "test_a_number_of_another_type_is_converted",
    ),
    Mutant(
        "D15", "a number that inf would break refuses it", SETTINGS,
        "        limit = kind is int and name not in finite\n", "        limit = kind is int\n",
        OF_SETTINGS, "test_a_limit_may_be_turned_off_by_inf",
    ),
    Mutant(
        "D15", "inf is no limit", SETTINGS,
        "sys.maxsize if limit and isinstance(given, float) and given == inf else given", "given",
        OF_SETTINGS, "test_a_limit_may_be_turned_off_by_inf",
    ),
    Mutant(
        "D15", "the fields of a user's subclass are not checked", SETTINGS,
        "    hints = get_type_hints(own).items()\n", "    hints = get_type_hints(cls).items()\n",
        OF_SETTINGS, "test_a_subclass_of_a_user_may_have_fields_of_any_type",
    ),
    Mutant(
        "D15", "a path is no store", "server/checks.py",
        "isinstance(given, type | os.PathLike)", "isinstance(given, type)",
        OF_SETTINGS, "test_a_file_is_named_by_a_string_or_a_path",
    ),
    Mutant(
        "D15", "authorities to trust are read where they are set", "transports/verification.py",
        "    if not isinstance(verify, str | os.PathLike):\n", "    if True:\n",
        OF_SETTINGS, "test_authorities_to_trust_may_be_named_by_a_file",
    ),
    # -- results
    Mutant(
        "D19", "a refused batch is answered by the ids of its requests", "_peer/machine.py",
        "            if link.per_request or not asked:\n", "            if True:\n",
        "tests/transports/test_stdio_server.py",
        "test_a_batch_of_requests_and_responses_is_refused_by_the_ids_of_the_requests",
    ),
    Mutant(
        "D20", "progress of another type of number becomes a float", "server/context.py",
        "    return float(value)\n", "    return value\n",
        "tests/server/test_tools.py", "test_progress_takes_any_number",
    ),
    Mutant(
        "D20", "progress is a number", "server/context.py",
        "    if isinstance(value, str | bytes) or not hasattr(value, \"__float__\"):\n", "    if False:\n",
        "tests/server/test_tools.py", "test_progress_takes_any_number",
    ),
    Mutant(
        "D20", "a completion that is one text is one value", "server/features/completion.py",
        "(value,) if isinstance(value, str) else ", "",
        "tests/server/test_resources.py", "test_a_completion_that_returns_one_text_is_one_value",
    ),
    # -- extensions
    Mutant(
        "D13", "a refused listen request ends what extensions began", "server/features/listen.py",
        "            ends.callback(each.begin(notify))\n", "            each.begin(notify)\n",
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
        "ends.callback(session.runtime.bus.subscribe(tuple(followed), changed).close)",
        "session.runtime.bus.subscribe(tuple(followed), changed)",
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
    Mutant(
        "D23", "a page goes with its last tool", "extensions/apps/extension.py",
        "        if page is None:\n            return\n        tools =",
        "        if True:\n            return\n        tools =",
        APPS, "test_a_page_goes_with_its_last_tool_and_can_be_replaced",
    ),
    Mutant(
        "D23", "a page stays while a tool has it", "extensions/apps/extension.py",
        "        tools = _tools_of(server, page)\n        shown", "        tools = []\n        shown",
        APPS, "test_a_page_goes_with_its_last_tool_and_can_be_replaced",
    ),
    Mutant(
        "D23", "a page that has gone can be replaced", "extensions/apps/extension.py",
        "        del self._pages[page.uri]\n", "",
        APPS, "test_a_page_goes_with_its_last_tool_and_can_be_replaced",
    ),
    Mutant(
        "D16", "skills of an included server keep their prefix", "extensions/skills/extension.py",
        "                names = (prefix + fields[\"name\"], prefix + skill.path)\n",
        "                names = (fields[\"name\"], skill.path)\n",
        SKILLS, "test_skills_come_along_when_a_server_is_included",
    ),
    Mutant(
        "D16", "a resource of a skill may have been removed", "extensions/skills/extension.py",
        " and resources.registry.get(uri) is not None:\n", ":\n",
        SKILLS, "test_skills_come_along_when_a_server_is_included",
    ),
    Mutant(
        "D16", "a broken skill is not served as it was", "extensions/skills/extension.py",
        "                    faults.add(str(skill))\n",
        "                    faults.add(str(skill))\n                    found.update(self._skills)\n",
        SKILLS, "test_a_skill_that_an_edit_breaks_is_not_served_until_it_is_corrected",
    ),
    Mutant(
        "D16", "a broken skill does not keep others that have gone", "extensions/skills/extension.py",
        "                    faults.add(str(skill))\n", "                    return self._skills\n",
        SKILLS, "test_a_deleted_skill_is_gone_although_another_one_is_broken",
    ),
    Mutant(
        "D17", "a file may vanish while the folder is walked", CATALOG,
        "    except FileNotFoundError:\n        return False\n",
        "    except ZeroDivisionError:\n        return False\n",
        SKILLS, FILES,
    ),
    Mutant(
        "D17", "a file may vanish before it is read", CATALOG,
        "                with suppress(FileNotFoundError):\n", "                with suppress(ZeroDivisionError):\n",
        SKILLS, FILES,
    ),
    Mutant(
        "D17", "a skill may vanish before it is read", CATALOG,
        "            if SKILL not in files:\n                return None\n", "", SKILLS, FILES,
    ),
    Mutant(
        "D22", "running tasks belong to the runtime", "extensions/tasks/extension.py",
        "RunningTasks(Shares(self.max_running, owners=Owners(several=True)))",
        "next(iter(self._running.values()), RunningTasks(Shares(self.max_running, owners=Owners(several=True))))",
        TASKS_HTTP, "test_two_runtimes_do_not_see_each_others_tasks",
    ),
    Mutant(
        "D22", "a task that runs when its runtime ends is stored as failed", "extensions/tasks/extension.py",
        "            running.end_all()\n", "",
        TASKS_HTTP, "test_a_task_that_runs_when_its_runtime_ends_is_stored_as_failed",
    ),
    # -- what is open once
    Mutant(
        "D18", "an application is open once", "transports/http_server/hypercorn/hosted.py",
        "        if self._is_open:\n", "        if False:\n",
        "tests/transports/test_http_app.py", "test_an_application_is_opened_once_at_a_time",
    ),
    Mutant(
        "D05", "a store is open once", "stores/_group_commit.py",
        "        if self._open:\n", "        if False:\n",
        SQLITE, "test_one_store_opened_twice_is_refused_at_once_and_the_first_goes_on",
    ),
    Mutant(
        "D21", "a file that is no database is not opened", "stores/_sqlite_file.py",
        "        if header and not header.startswith(MAGIC):\n", "        if False:\n",
        SQLITE, "test_a_file_that_is_not_a_store_is_refused_and_left_alone",
    ),
    Mutant(
        "D21", "only a damaged store is moved aside", "stores/_sqlite_file.py",
        "                if not (ours and is_damage(error)):\n", "                if not is_damage(error):\n",
        SQLITE, "test_a_file_that_is_not_a_store_is_refused_and_left_alone",
    ),
]  # fmt: skip
