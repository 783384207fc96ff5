"""Every feature of the conformance fixture server, as a client of another maker sees it.

Runs inside the environment of that maker's SDK, so it imports nothing of mcptrio. An adapter (`drive_mcp1.py`,
`drive_mcp2.py`) turns the SDK into plain JSON; the checks below are the same for all. `features.mjs` is the same list
for the TypeScript SDKs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

Json = dict[str, Any]
Check = Callable[["Peer"], Awaitable[None]]
TIMEOUT = 20.0  # for one feature
FEATURES: dict[str, Check] = {}
STATELESS = os.environ.get("PEER_LIFE") == "stateless"
SKIPPED = os.environ.get("PEER_SKIP", "").split(",")  # what this life does not have

DEFAULTS = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
CHOICES = {
    "untitledSingle": "option1",
    "titledSingle": "value1",
    "legacyEnum": "opt1",
    "untitledMulti": ["option1", "option2"],
    "titledMulti": ["value1", "value2"],
}
ROOTS = [{"uri": "file:///home/one", "name": "one"}, {"uri": "file:///home/two", "name": "two"}]


class Refused(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Peer:
    """The interface of an adapter. Results, notifications and questions are plain JSON in the words of the wire."""

    def __init__(self) -> None:
        self.opening: Json = {}  # the result of initialize
        self.notified: list[tuple[str, Json]] = []
        self.asked: list[tuple[str, Json]] = []
        self.answer: Json = {}  # what the person says to the next elicitation
        self.answers: list[Json] = []  # what they say to the next ones, where that differs

    async def call(self, name: str, arguments: Json | None = None, on_progress: Any = None) -> Json:
        raise NotImplementedError

    async def call_and_cancel(self, name: str, arguments: Json, after: float) -> None:
        raise NotImplementedError

    async def request(self, method: str, params: Json | None = None) -> Json:
        """One of the methods that only read: lists, reads, gets, completion, ping, subscribe, setLevel."""
        raise NotImplementedError

    def elicited(self, params: Json) -> Json:
        self.asked.append(("elicitation/create", params))
        return self.answers.pop(0) if self.answers else self.answer

    def sampled(self, params: Json) -> Json:
        self.asked.append(("sampling/createMessage", params))
        said = params["messages"][0]["content"]
        said = said[0] if isinstance(said, list) else said
        return {
            "role": "assistant",
            "model": "a-model",
            "stopReason": "endTurn",
            "content": {"type": "text", "text": f"You said: {said['text']}"},
        }

    def params_of(self, method: str) -> list[Json]:
        return [params for name, params in self.notified if name == method]

    async def until(self, what: str, true: Callable[[], bool]) -> None:
        with anyio.move_on_after(5):
            while not true():
                await anyio.sleep(0.02)
            return
        raise AssertionError(f"did not come: {what}; notified: {self.notified[-5:]}")


def feature(check: Check) -> Check:
    FEATURES[check.__name__] = check
    return check


def same(found: object, wanted: object) -> None:
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def texts(result: Json) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def after(prefix: str, text: str) -> Any:
    assert text.startswith(prefix), f"{text!r} does not begin with {prefix!r}"
    return json.loads(text.removeprefix(prefix))


async def refusal(request: Awaitable[Json]) -> int:
    try:
        result = await request
    except Refused as error:
        return error.code
    raise AssertionError(f"was not refused: {result}")


# -- opening


@feature
async def initialize(peer: Peer) -> None:
    same(peer.opening["protocolVersion"], "2026-07-28" if STATELESS else "2025-11-25")
    assert peer.opening["serverInfo"]["name"]
    assert peer.opening["serverInfo"]["version"]
    offered = peer.opening["capabilities"]
    same({name for name in offered if name in ("logging", "completions")}, {"logging", "completions"})
    same([offered[name].get("listChanged") for name in ("tools", "prompts", "resources")], [True, True, True])
    same(offered["resources"].get("subscribe"), True)


@feature
async def ping(peer: Peer) -> None:
    same(await peer.request("ping"), {})


# -- tools


@feature
async def tools_list(peer: Peer) -> None:
    tools = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
    assert all(tool.get("description") for tool in tools.values())
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    same(schema["$defs"]["address"]["$anchor"], "addressDef")
    same(schema["additionalProperties"], False)
    same(schema["if"]["properties"]["contactMethod"], {"const": "phone"})
    properties = tools["test_structured_output"]["outputSchema"]["properties"]
    same(
        {name: field["type"] for name, field in properties.items()},
        {"city": "string", "temperature": "number", "conditions": "string"},
    )


@feature
async def tool_text(peer: Peer) -> None:
    result = await peer.call("test_simple_text")
    same(texts(result), ["This is a simple text response for testing."])
    assert not result.get("isError")


@feature
async def tool_image(peer: Peer) -> None:
    (block,) = (await peer.call("test_image_content"))["content"]
    same((block["type"], block["mimeType"], block["data"][:8]), ("image", "image/png", "iVBORw0K"))


@feature
async def tool_audio(peer: Peer) -> None:
    (block,) = (await peer.call("test_audio_content"))["content"]
    same((block["type"], block["mimeType"], block["data"][:4]), ("audio", "audio/wav", "UklG"))


@feature
async def tool_embedded_resource(peer: Peer) -> None:
    (block,) = (await peer.call("test_embedded_resource"))["content"]
    same(block["type"], "resource")
    same(block["resource"]["uri"], "test://embedded-resource")
    same(block["resource"]["text"], "This is an embedded resource content.")


@feature
async def tool_mixed_content(peer: Peer) -> None:
    content = (await peer.call("test_multiple_content_types"))["content"]
    same([block["type"] for block in content], ["text", "image", "resource"])
    same(json.loads(content[2]["resource"]["text"]), {"test": "data", "value": 123})


@feature
async def tool_structured_output(peer: Peer) -> None:
    result = await peer.call("test_structured_output", {"city": "Oslo"})
    wanted = {"city": "Oslo", "temperature": 22.5, "conditions": "sunny"}
    same(result["structuredContent"], wanted)
    same([json.loads(text) for text in texts(result)], [wanted])


@feature
async def tool_error(peer: Peer) -> None:
    result = await peer.call("test_error_handling")
    same(result.get("isError"), True)
    same(texts(result), ["This tool intentionally returns an error for testing"])


@feature
async def tool_unknown(peer: Peer) -> None:
    same(await refusal(peer.call("there_is_no_such_tool")), -32602)


@feature
async def tool_bad_arguments(peer: Peer) -> None:
    result = await peer.call("test_structured_output", {"city": ["not", "a", "string"]})
    same(result.get("isError"), True)
    assert "city" in texts(result)[0], texts(result)


@feature
async def tools_at_once(peer: Peer) -> None:
    for seconds in (0.5, 10):  # the second time only if a busy machine took longer than the first
        if await _quick_calls_overtake(peer, seconds):
            return
    raise AssertionError("a slow call held up the quick ones")


async def _quick_calls_overtake(peer: Peer, seconds: float) -> bool:
    slow = anyio.Event()

    async def wait() -> None:
        same(texts(await peer.call("test_cancellation", {"seconds": seconds})), ["finished"])
        slow.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for _ in range(3):
            same(texts(await peer.call("test_simple_text")), ["This is a simple text response for testing."])
        return not slow.is_set()


@feature
async def logging(peer: Peer) -> None:
    await peer.request("logging/setLevel", {"level": "debug"})
    before = len(peer.params_of("notifications/message"))
    await peer.call("test_tool_with_logging")
    await peer.until("three log messages", lambda: len(peer.params_of("notifications/message")) >= before + 3)
    said = peer.params_of("notifications/message")[before:]
    wanted = ["Tool execution started", "Tool processing data", "Tool execution completed"]
    same([(one["level"], one["data"]) for one in said], [("info", text) for text in wanted])


@feature
async def logging_level(peer: Peer) -> None:
    await peer.request("logging/setLevel", {"level": "error"})
    before = len(peer.params_of("notifications/message"))
    await peer.call("test_tool_with_logging")
    await peer.request("logging/setLevel", {"level": "info"})
    same(peer.params_of("notifications/message")[before:], [])


@feature
async def progress(peer: Peer) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(done: float, total: float | None, message: str | None = None) -> None:
        seen.append((done, total))

    await peer.call("test_tool_with_progress", {}, note)
    await peer.until("three steps of progress", lambda: len(seen) >= 3)
    same(seen, [(0, 100), (50, 100), (100, 100)])


@feature
async def cancellation(peer: Peer) -> None:
    async def count() -> int:
        return int(after("cancelled: ", texts(await peer.call("test_cancellation_count"))[0]))

    before = await count()
    await peer.call_and_cancel("test_cancellation", {"seconds": 60}, after=0.5)
    while await count() != before + 1:
        await anyio.sleep(0.05)


# -- questions to the client


@feature
async def sampling(peer: Peer) -> None:
    result = await peer.call("test_sampling", {"prompt": "Good morning"})
    same(texts(result), ["LLM response: You said: Good morning"])
    method, params = peer.asked[-1]
    same((method, params["maxTokens"], params["messages"][0]["role"]), ("sampling/createMessage", 100, "user"))


@feature
async def elicitation(peer: Peer) -> None:
    peer.answer = {"action": "accept", "content": {"username": "ada", "email": "ada@example.org"}}
    (text,) = texts(await peer.call("test_elicitation", {"message": "Who are you?"}))
    same(after("User response: action=accept, content=", text), peer.answer["content"])
    method, params = peer.asked[-1]
    same((method, params["message"]), ("elicitation/create", "Who are you?"))
    same(sorted(params["requestedSchema"]["required"]), ["email", "username"])


@feature
async def elicitation_declined(peer: Peer) -> None:
    for action in ("decline", "cancel"):
        peer.answer = {"action": action}
        (text,) = texts(await peer.call("test_elicitation", {"message": "Who are you?"}))
        assert text.startswith(f"User response: action={action}"), text


@feature
async def elicitation_defaults(peer: Peer) -> None:
    peer.answer = {"action": "accept", "content": DEFAULTS}
    (text,) = texts(await peer.call("test_elicitation_sep1034_defaults"))
    same(after("Elicitation completed: action=accept, content=", text), DEFAULTS)
    fields = peer.asked[-1][1]["requestedSchema"]["properties"]
    same({name: field["default"] for name, field in fields.items()}, DEFAULTS)
    same(fields["status"]["enum"], ["active", "inactive", "pending"])


@feature
async def elicitation_enums(peer: Peer) -> None:
    peer.answer = {"action": "accept", "content": CHOICES}
    (text,) = texts(await peer.call("test_elicitation_sep1330_enums"))
    same(after("Elicitation completed: action=accept, content=", text), CHOICES)
    fields = peer.asked[-1][1]["requestedSchema"]["properties"]
    assert "option1" in fields["untitledSingle"]["enum"], fields
    same(fields["titledSingle"]["oneOf"][0]["const"], "value1")
    same(len(fields["legacyEnum"]["enum"]), len(fields["legacyEnum"]["enumNames"]))
    assert "option1" in fields["untitledMulti"]["items"]["enum"], fields
    same(fields["titledMulti"]["items"]["anyOf"][0]["const"], "value1")


@feature
async def elicitation_url(peer: Peer) -> None:
    peer.answer = {"action": "accept"}
    result = await peer.call("test_elicitation_url", {"url": "https://example.org/pay"})
    same(texts(result), ["URL elicitation: action=accept"])
    params = peer.asked[-1][1]
    same((params["mode"], params["url"]), ("url", "https://example.org/pay"))
    same(params["message"], "Please visit the link")
    same(bool(params.get("elicitationId")), not STATELESS)


@feature
async def roots(peer: Peer) -> None:
    result = await peer.call("test_list_roots")
    same(texts(result), ["Roots: file:///home/one, file:///home/two"])


def accepted(**content: Any) -> Json:
    return {"action": "accept", "content": content}


@feature
async def questions_in_turn(peer: Peer) -> None:
    peer.answers = [accepted(name="Ada"), accepted(color="green")]
    same(texts(await peer.call("test_input_required_result_multi_round")), ["Ada likes green."])
    wanted = ["Step 1: What is your name?", "Step 2: What is your favorite color?"]
    same([params["message"] for _, params in peer.asked[-2:]], wanted)


@feature
async def questions_at_once(peer: Peer) -> None:
    peer.answer = accepted(name="Ada")
    result = await peer.call("test_input_required_result_multiple_inputs")
    same(texts(result), ["name: Ada, greeting: You said: Generate a greeting, roots: 2"])


@feature
async def prompt_that_asks(peer: Peer) -> None:
    peer.answer = accepted(context="the sea")
    (block,) = await prompt(peer, "test_input_required_result_prompt")
    same(block["text"], "Use this context: the sea")


@feature
async def header_parameter(peer: Peer) -> None:
    await peer.request("tools/list")  # the client has to know the tool's schema
    for region in ("eu-west1", "gr\u00fcn ", ""):
        same(texts(await peer.call("test_x_mcp_header", {"region": region})), [f"region: {region}"])


@feature
async def reconnection(peer: Peer) -> None:
    same(texts(await peer.call("test_reconnection")), ["Reconnection test completed"])


# -- resources


@feature
async def resources_list(peer: Peer) -> None:
    cursor, sizes, found = None, [], []
    while True:
        page = await peer.request("resources/list", {"cursor": cursor} if cursor else None)
        sizes.append(len(page["resources"]))
        found += page["resources"]
        cursor = page.get("nextCursor")
        if not cursor:
            break
    uris = [resource["uri"] for resource in found]
    wanted = {f"test://page/{number:02}" for number in range(1, 26)}
    assert wanted | {"test://static-text", "test://static-binary", "test://watched-resource"} <= set(uris), uris
    same(len(uris), len(set(uris)))
    same(set(sizes[:-1]), {10})
    assert all(resource["name"] for resource in found)


@feature
async def resources_bad_cursor(peer: Peer) -> None:
    same(await refusal(peer.request("resources/list", {"cursor": "no-such-cursor"})), -32602)


@feature
async def resource_text(peer: Peer) -> None:
    (one,) = (await peer.request("resources/read", {"uri": "test://static-text"}))["contents"]
    same((one["uri"], one["mimeType"]), ("test://static-text", "text/plain"))
    same(one["text"], "This is the content of the static text resource.")


@feature
async def resource_binary(peer: Peer) -> None:
    (one,) = (await peer.request("resources/read", {"uri": "test://static-binary"}))["contents"]
    same((one["mimeType"], one["blob"][:8]), ("image/png", "iVBORw0K"))


@feature
async def resource_template(peer: Peer) -> None:
    templates = (await peer.request("resources/templates/list"))["resourceTemplates"]
    assert "test://template/{id}/data" in [template["uriTemplate"] for template in templates]
    (one,) = (await peer.request("resources/read", {"uri": "test://template/123/data"}))["contents"]
    same((one["uri"], one["mimeType"]), ("test://template/123/data", "application/json"))
    same(json.loads(one["text"]), {"id": "123", "templateTest": True, "data": "Data for ID: 123"})


@feature
async def resource_unknown(peer: Peer) -> None:
    code = -32602 if STATELESS else -32002
    same(await refusal(peer.request("resources/read", {"uri": "test://no-such-resource"})), code)


@feature
async def subscription(peer: Peer) -> None:
    watched = {"uri": "test://watched-resource"}

    def updates() -> int:
        return sum(params["uri"] == watched["uri"] for params in peer.params_of("notifications/resources/updated"))

    before = updates()
    same(await peer.request("resources/subscribe", watched), {})
    same(texts(await peer.call("test_update_watched_resource", {"text": "first"})), ["updated"])
    await peer.until("an update of the watched resource", lambda: updates() == before + 1)
    (one,) = (await peer.request("resources/read", watched))["contents"]
    same(one["text"], "first")
    same(await peer.request("resources/unsubscribe", watched), {})
    await peer.call("test_update_watched_resource", {"text": "second"})
    await anyio.sleep(0.2)
    same(updates(), before + 1)


async def list_changed(peer: Peer, tool: str, method: str) -> None:
    before = len(peer.params_of(method))
    await peer.call(tool)
    await peer.until(method, lambda: len(peer.params_of(method)) > before)


@feature
async def tools_list_changed(peer: Peer) -> None:
    await list_changed(peer, "test_trigger_tool_change", "notifications/tools/list_changed")


@feature
async def prompts_list_changed(peer: Peer) -> None:
    await list_changed(peer, "test_trigger_prompt_change", "notifications/prompts/list_changed")


@feature
async def resources_list_changed(peer: Peer) -> None:
    await list_changed(peer, "test_trigger_resource_change", "notifications/resources/list_changed")


# -- prompts and completion


async def prompt(peer: Peer, name: str, arguments: dict[str, str] | None = None) -> list[Json]:
    result = await peer.request("prompts/get", {"name": name, **({"arguments": arguments} if arguments else {})})
    same({message["role"] for message in result["messages"]}, {"user"})
    return [message["content"] for message in result["messages"]]


@feature
async def prompts_list(peer: Peer) -> None:
    prompts = {prompt["name"]: prompt for prompt in (await peer.request("prompts/list"))["prompts"]}
    assert all(prompt.get("description") for prompt in prompts.values())
    arguments = prompts["test_prompt_with_arguments"]["arguments"]
    same([(one["name"], one.get("required")) for one in arguments], [("arg1", True), ("arg2", True)])


@feature
async def prompt_simple(peer: Peer) -> None:
    (block,) = await prompt(peer, "test_simple_prompt")
    same(block["text"], "This is a simple prompt for testing.")


@feature
async def prompt_arguments(peer: Peer) -> None:
    (block,) = await prompt(peer, "test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
    same(block["text"], "Prompt with arguments: arg1='hello', arg2='world'")


@feature
async def prompt_missing_argument(peer: Peer) -> None:
    request = peer.request("prompts/get", {"name": "test_prompt_with_arguments", "arguments": {"arg1": "x"}})
    same(await refusal(request), -32602)


@feature
async def prompt_embedded_resource(peer: Peer) -> None:
    first, second = await prompt(peer, "test_prompt_with_embedded_resource", {"resourceUri": "test://mine"})
    same((first["type"], first["resource"]["uri"]), ("resource", "test://mine"))
    same(first["resource"]["text"], "Embedded resource content for testing.")
    same(second["text"], "Please process the embedded resource above.")


@feature
async def prompt_image(peer: Peer) -> None:
    first, second = await prompt(peer, "test_prompt_with_image")
    same((first["type"], first["mimeType"]), ("image", "image/png"))
    same(second["text"], "Please analyze the image above.")


@feature
async def completion(peer: Peer) -> None:
    result = await peer.request(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "argument": {"name": "arg1", "value": "t"},
        },
    )
    assert isinstance(result["completion"]["values"], list)


# -- running


async def drive(peer: Peer) -> dict[str, str]:
    """Feature -> "ok" or what went wrong, each with its own deadline."""
    found = {}
    for name, check in FEATURES.items():
        if name in SKIPPED:
            continue
        try:
            with anyio.fail_after(TIMEOUT):
                await check(peer)
            found[name] = "ok"
        except TimeoutError:
            found[name] = f"not done after {TIMEOUT:.0f} s"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def command_line() -> str | list[str]:
    """The target: a URL, or the words of a command for stdio."""
    words = sys.argv[1:]
    return words[0] if len(words) == 1 and words[0].startswith("http") else words


def finish(found: dict[str, str]) -> None:
    print(json.dumps(found))
