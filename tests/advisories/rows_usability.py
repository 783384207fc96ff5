"""Mutants for what costs a newcomer time (U): hints, either form of a function, mistakes that are refused early."""

from __future__ import annotations

from .mutant import HTTP, Mutant

HINTS, SESSIONS, EMBEDDING = (
    "tests/test_hints.py",
    "tests/server/test_sessions.py",
    "tests/e2e/test_embedding.py",
)
SERVE, ENDPOINT = "tests/server/test_serve.py", "tests/e2e/test_http_endpoint.py"
TYPES, OPTIONS = "tests/schema/test_types.py", "tests/server/test_options.py"
CHECKERS, CHECKED = "tests/typing/test_type_checkers.py", "test_mypy_accepts_what_is_right_and_nothing_else"

MUTANTS = [
    Mutant(
        "U6", "an import of another package has a hint", "__init__.py",
        "            raise missing_name(__name__, name)\n", "            pass\n",
        HINTS, "test_an_import_of_another_package_is_explained",
    ),
    Mutant(
        "U6", "an import from mcptrio.server has a hint", "server/__init__.py",
        "        raise missing_name(__name__, name)\n", "        pass\n",
        HINTS, "test_an_import_of_another_package_is_explained",
    ),
    Mutant(
        "U6", "a hint reaches `from mcptrio import name`", "_hints.py",
        "    return ImportError(f\"cannot import name", "    return AttributeError(f\"cannot import name",
        HINTS, "test_an_import_of_another_package_is_explained",
    ),
    Mutant(
        "U6", "an attribute of another package has a hint", "_hints.py",
        "    raise AttributeError(f\"{text}: {_sentence(found, name)}\")\n", "    raise AttributeError(text)\n",
        HINTS, "test_an_attribute_of_another_package_is_explained",
    ),
    Mutant(
        "U8", "a lifespan function has either form", "server/server.py",
        "entered_with(\"lifespan\", lifespan)", "lifespan",
        SESSIONS, "test_lifespan_and_session_functions_have_either_form",
    ),
    Mutant(
        "U8", "a session function has either form", "server/features/lifecycle.py",
        "entered_with(\"session\", fn), movable", "asynccontextmanager(fn), movable",
        SESSIONS, "test_lifespan_and_session_functions_have_either_form",
    ),
    Mutant(
        "U8", "a function of neither form is refused", "server/features/lifecycle.py",
        "    if inspect.iscoroutinefunction(fn) or inspect", "    if False and inspect",
        SESSIONS, "test_a_lifespan_or_session_function_of_another_kind_is_refused",
    ),
    Mutant(
        "U11", "a server over HTTP that is stopped drains", "server/serve.py",
        "                await listener.shut_down(drain, timeout=grace + 0.5)\n", "",
        EMBEDDING, "test_a_server_that_is_stopped_finishes_its_calls_and_returns",
    ),
    Mutant(
        "U11", "a server over stdio that is stopped drains", "server/serve.py",
        "    await stop.wait()\n    await _drain(runtime, drain_timeout, program)\n", "    await stop.wait()\n",
        EMBEDDING, "test_a_stdio_server_that_is_stopped_finishes_its_call_and_returns",
    ),
    Mutant(
        "U13", "the version is that of the package", "server/server.py",
        "version=own_version() if version is None", "version=\"0.1.0\" if version is None",
        SERVE, "test_a_server_without_a_version_reports_that_of_the_package",
    ),
    Mutant(
        "U14", "a default is checked", "_schema/build.py",
        "                _check_default(shape, default)\n", "                pass\n",
        TYPES, "test_a_default_of_the_wrong_type_is_refused",
    ),
    Mutant(
        "U14", "a prompt returns messages", "server/features/prompts.py",
        "        if not _gives_messages(returns := function.signature.returns):\n",
        "        if not (returns := function):\n",
        OPTIONS, "test_a_prompt_that_cannot_return_messages_is_refused",
    ),
    Mutant(
        "U15", "a blocked loop is noticed over stdio", "server/serve.py",
        "    made.watchdog = Watchdog(made.hub)\n", "",
        "tests/e2e/test_cli.py", "test_a_tool_that_blocks_the_event_loop_over_stdio_is_named",
    ),
    Mutant(
        "U15", "asyncio in a tool has a hint", "server/features/tools.py",
        "why or asyncio_hint(error), exc_info", "why, exc_info",
        "tests/server/test_asyncio_tools.py", "test_asyncio_awaited_in_a_trio_tool_is_explained_in_the_log",
    ),
    Mutant(
        "U15", "asyncio in another handler has a hint", "_actors/router.py",
        "what, asyncio_hint(error), exc_info", "what, \"\", exc_info",
        SERVE, "test_an_asyncio_library_inside_a_handler_gets_a_hint_in_the_log",
    ),
    Mutant(
        "U16", "responses through Hypercorn have a reason phrase", f"{HTTP}/hypercorn/connection.py",
        "            object.__setattr__(event, \"reason\", REASON_PHRASES[event.status_code].encode())\n",
        "            pass\n",
        ENDPOINT, "test_every_response_has_a_reason_phrase",
    ),
    Mutant(
        "U16", "responses of the direct engine have a reason phrase", f"{HTTP}/direct/writer.py",
        "(status, REASON_PHRASES[status].encode())", "(status, b\"\")",
        ENDPOINT, "test_every_response_has_a_reason_phrase",
    ),
    Mutant(
        "U16", "refusals before a request is served have a reason phrase", f"{HTTP}/listener/framing.py",
        "{REASON_PHRASES[self.status]}\"", "\"",
        ENDPOINT, "test_every_response_has_a_reason_phrase",
    ),
    Mutant(
        "U19", "the settings of run() are typed", "server/server.py",
        "**settings: Unpack[RunOptions]) -> None:", "**settings: Any) -> None:",
        CHECKERS, CHECKED,
    ),
    Mutant(
        "U19", "the lifespan of a context is typed", "server/context.py",
        "    def lifespan(self) -> LifespanT:\n", "    def lifespan(self) -> Any:\n",
        CHECKERS, CHECKED,
    ),
    Mutant(
        "U19", "a decorated resource keeps its signature", "server/server.py",
        "**options: Unpack[ResourceOptions]) -> Callable[[Callable[P, R]], Completable[P, R]]:",
        "**options: Unpack[ResourceOptions]) -> Any:",
        CHECKERS, CHECKED,
    ),
]  # fmt: skip
