"""Resources and templates: reading, listing, pages, subscriptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, MCPError, ResourceNotFound, Server, connect, types
from mcptrio._actors.limits import Limits
from mcptrio._peer.era import Era
from mcptrio._wire.objects.converter import structure
from mcptrio.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mcptrio.types import Annotations, BlobResourceContents, ReadResourceResult, TextResourceContents
from tests.server.talk import Talk, every_era, open_server, refusal, talking


@dataclass
class Note:
    title: str
    written: date


def library(limits: Limits | None = None) -> Server:
    server = Server("library", limits=limits or Limits())

    @server.resource("notes://today", title="Today", annotations=Annotations(priority=1), size=4, meta={"m": 1})
    async def today() -> str:
        """Today's notes."""
        return "Rain"

    @server.resource("notes://logo", mime_type="image/png")
    async def logo() -> bytes:
        return b"\x89PNG"

    @server.resource("notes://typed")
    def typed() -> Note:
        return Note("Typed", date(2020, 1, 2))

    @server.resource("notes://pair")
    async def pair() -> list[TextResourceContents | BlobResourceContents]:
        return [
            TextResourceContents(uri="notes://pair/1", text="one", meta={"m": 1}),
            BlobResourceContents(uri="notes://pair/2", blob="dHdv"),
        ]

    @server.resource("notes://whole")
    async def whole() -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri="notes://other", text="whole")])

    @server.resource("notes://{year}/{+path}", title="Archive")
    async def archive(year: int, path: str, ctx: Context) -> dict[str, Any]:
        if year < 1900:
            raise ResourceNotFound
        return {"year": year, "path": path, "asked": ctx.method}

    @server.resource("notes://locked")
    async def locked() -> str:
        raise MCPError(-32050, "locked")

    return server


async def contents(talk: Talk, uri: str) -> dict[str, Any]:
    (one,) = (await talk.request("resources/read", uri=uri))["contents"]
    found: dict[str, Any] = one
    return found


@every_era
async def test_each_kind_of_value_can_be_read(era: Era) -> None:
    async with talking(library(), era) as talk:
        assert await contents(talk, "notes://today") == {
            "uri": "notes://today",
            "mimeType": "text/plain",
            "text": "Rain",
        }
        assert await contents(talk, "notes://logo") == {
            "uri": "notes://logo",
            "mimeType": "image/png",
            "blob": "iVBORw==",
        }
        typed = await contents(talk, "notes://typed")
        assert (typed["mimeType"], json.loads(typed["text"])) == (
            "application/json",
            {"title": "Typed", "written": "2020-01-02"},
        )
        pair = (await talk.request("resources/read", uri="notes://pair"))["contents"]
        assert [(one["uri"], one.get("text"), one.get("blob")) for one in pair] == [
            ("notes://pair/1", "one", None),
            ("notes://pair/2", None, "dHdv"),
        ]
        assert all(set(one) <= era.shapes["contents"] for one in pair)
        assert (await contents(talk, "notes://whole"))["uri"] == "notes://other"


async def test_the_variables_of_a_template_become_typed_arguments() -> None:
    async with talking(library()) as talk:
        found = await contents(talk, "notes://1999/a/b")
        assert found["uri"] == "notes://1999/a/b"
        assert json.loads(found["text"]) == {"year": 1999, "path": "a/b", "asked": "resources/read"}
        error = await refusal(talk, "resources/read", uri="notes://soon/a")
        assert (error.code, error.data) == (INVALID_PARAMS, {"uri": "notes://soon/a"})
        assert "arguments.year: expected integer" in error.message


@every_era
async def test_an_unknown_resource_has_the_error_code_of_the_date(era: Era) -> None:
    async with talking(library(), era) as talk:
        for uri in ("notes://nowhere", "notes://1850/a", "other://today"):
            error = await refusal(talk, "resources/read", uri=uri)
            assert (error.code, error.data) == (era.resource_not_found, {"uri": uri})
        error = await refusal(talk, "resources/read", uri="notes://locked")
        assert (error.code, error.message) == (-32050, "locked")
        assert (await refusal(talk, "resources/read")).code == INVALID_PARAMS


@every_era
async def test_resources_and_templates_are_listed_apart_in_the_order_declared(era: Era) -> None:
    async with talking(library(), era) as talk:
        resources = (await talk.request("resources/list"))["resources"]
        templates = (await talk.request("resources/templates/list"))["resourceTemplates"]
    assert [one["name"] for one in resources] == ["today", "logo", "typed", "pair", "whole", "locked"]
    assert [one["uriTemplate"] for one in templates] == ["notes://{year}/{+path}"]
    assert resources[0]["description"] == "Today's notes."
    assert all(set(one) <= era.shapes["resource"] for one in resources)
    assert all(set(one) <= era.shapes["template"] for one in templates)


async def _number(number: int) -> str:
    return str(number)


def long_list(count: int) -> Server:
    server = Server("long", page_size={"resources": 10})
    for number in range(count):
        server.add_resource(f"page://{number}", partial(_number, number), name=f"p{number}")
    return server


async def pages(talk: Talk, between: Callable[[], None] = lambda: None) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await talk.request("resources/list", **cursor)
        found.append([one["uri"] for one in page["resources"]])
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}
        between()


@pytest.mark.parametrize(("count", "sizes"), [(0, None), (9, [9]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
async def test_pages_join_up_to_the_whole_list(count: int, sizes: list[int] | None) -> None:
    async with talking(long_list(count)) as talk:
        if sizes is None:
            assert (await refusal(talk, "resources/list")).code == METHOD_NOT_FOUND
            return
        found = await pages(talk)
        assert [len(page) for page in found] == sizes
        assert [uri for page in found for uri in page] == [f"page://{number}" for number in range(count)]


async def test_no_entry_is_skipped_or_doubled_when_the_list_changes_between_two_pages() -> None:
    server = long_list(25)
    removed = iter(["page://3", "page://9", "page://20"])
    async with talking(server) as talk:
        found = await pages(talk, between=lambda: server.remove_resource(next(removed)))
    uris = [uri for page in found for uri in page]
    assert len(uris) == len(set(uris))
    assert {f"page://{number}" for number in range(25)} - set(uris) <= {"page://20"}


@pytest.mark.parametrize("cursor", ["1", "10", "cmVzb3VyY2U6OTk5", "dG9vbDox", "é", "=" * 9, "A" * 5000])
async def test_a_cursor_that_was_never_given_is_refused(cursor: str) -> None:
    async with talking(long_list(25)) as talk:
        error = await refusal(talk, "resources/list", cursor=cursor)
        assert error.code == INVALID_PARAMS
        assert len(error.message) < 200


async def test_a_cursor_says_nothing_that_a_client_could_compute() -> None:
    """Clients must treat cursors as opaque; a bare number would tempt them."""
    async with talking(long_list(25)) as talk:
        cursor = (await talk.request("resources/list"))["nextCursor"]
        assert not cursor.isdigit()
        assert (await refusal(talk, "resources/templates/list", cursor=cursor)).code == INVALID_PARAMS


async def test_a_hidden_resource_is_neither_listed_nor_read_nor_subscribed_to() -> None:
    server = Server("rooms")

    def staff_only(ctx: Context) -> bool:
        return bool(ctx.client_capabilities.sampling)

    @server.resource("vault://gold", visible=staff_only)
    async def gold() -> str:
        return "gold"

    @server.resource("vault://box/{number}", visible=staff_only)
    async def box(number: int) -> str:
        return f"box {number}"

    @box.complete("number")
    async def numbers(prefix: str) -> list[str]:
        return ["1"]

    async with open_server(server) as join, join() as guest, join(capabilities={"sampling": {}}) as staff:
        assert (await guest.request("resources/list"))["resources"] == []
        assert (await guest.request("resources/templates/list"))["resourceTemplates"] == []
        for uri in ("vault://gold", "vault://box/1"):
            assert (await refusal(guest, "resources/read", uri=uri)).message == f"resource not found: {uri!r}"
            assert (await refusal(guest, "resources/subscribe", uri=uri)).message == f"resource not found: {uri!r}"
        ref = {"type": "ref/resource", "uri": "vault://box/{number}"}
        asked = {"ref": ref, "argument": {"name": "number", "value": ""}}
        assert (await refusal(guest, "completion/complete", **asked)).code == INVALID_PARAMS
        assert (await contents(staff, "vault://box/1"))["text"] == "box 1"
        assert (await staff.request("completion/complete", **asked))["completion"]["values"] == ["1"]


# -- subscriptions


UPDATED = "notifications/resources/updated"


@every_era
async def test_a_change_is_sent_to_subscribers_only(era: Era) -> None:
    server = library()
    async with open_server(server) as join, join(era) as one, join(era) as other:
        assert await one.request("resources/subscribe", uri="notes://today") == {}
        assert await one.request("resources/subscribe", uri="notes://today") == {}, "twice is once"
        assert await one.request("resources/subscribe", uri="notes://1999/a") == {}
        server.notify_resource_updated("notes://today")
        server.notify_resource_updated("notes://logo")
        server.notify_resource_updated("notes://1999/a")
        await one.settled()
        assert one.heard(UPDATED) == [{"uri": "notes://today"}, {"uri": "notes://1999/a"}]
        assert other.heard(UPDATED) == []
        assert await one.request("resources/unsubscribe", uri="notes://today") == {}
        assert await one.request("resources/unsubscribe", uri="notes://never") == {}
        server.notify_resource_updated("notes://today")
        await one.settled()
        assert len(one.heard(UPDATED)) == 2


async def test_a_change_can_be_published_from_a_thread_and_outside_of_any_run() -> None:
    server = library()
    server.notify_resource_updated("notes://today")  # the server does not run: there are no subscribers
    async with talking(server) as talk:
        await talk.request("resources/subscribe", uri="notes://today")
        await trio.to_thread.run_sync(server.notify_resource_updated, "notes://today")
        await talk.settled()
        assert talk.heard(UPDATED) == [{"uri": "notes://today"}]
    server.notify_resource_updated("notes://today")


async def test_a_subscription_to_what_does_not_exist_is_refused() -> None:
    async with talking(library()) as talk:
        error = await refusal(talk, "resources/subscribe", uri="notes://nowhere")
        assert error.data == {"uri": "notes://nowhere"}


async def test_a_session_that_ended_gets_no_more_changes() -> None:
    server = library()
    async with open_server(server) as join:
        async with join() as talk:
            await talk.request("resources/subscribe", uri="notes://today")
        server.notify_resource_updated("notes://today")
        await talk.settled()
        assert talk.heard(UPDATED) == []


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_change_can_be_sent_to_one_client_alone(in_thread: bool) -> None:
    server = library()

    @server.tool
    async def whisper(ctx: Context) -> str:
        notify = partial(ctx.session.notify_resource_updated, "notes://today", {"why": "new"})
        await trio.to_thread.run_sync(notify) if in_thread else notify()
        return "told"

    async with open_server(server) as join, join() as one, join() as other, join() as third:
        for talk in (one, other):
            await talk.request("resources/subscribe", uri="notes://today")
        await one.text("whisper")
        await third.text("whisper")  # it has not subscribed
        await one.settled()
        assert one.heard(UPDATED) == [{"uri": "notes://today", "_meta": {"why": "new"}}]
        assert (other.heard(UPDATED), third.heard(UPDATED)) == ([], [])


@every_era
async def test_a_change_carries_its_metadata(era: Era) -> None:
    server = library()
    async with talking(server, era) as talk:
        await talk.request("resources/subscribe", uri="notes://today")
        server.notify_resource_updated("notes://today", {"why": "new"})
        await talk.settled()
        assert talk.heard(UPDATED) == [{"uri": "notes://today", "_meta": {"why": "new"}}]


async def test_metadata_without_a_json_form_is_an_error_of_the_caller() -> None:
    server = library()
    async with talking(server) as talk:
        await talk.request("resources/subscribe", uri="notes://today")
        with pytest.raises(TypeError):
            server.notify_resource_updated("notes://today", {"why": object()})
        assert await talk.request("ping") == {}


async def test_a_session_may_not_subscribe_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcptrio.server.features.subscriptions.MAX_PER_SESSION", 2)
    async with talking(library()) as talk:
        await talk.request("resources/subscribe", uri="notes://1901/a")
        await talk.request("resources/subscribe", uri="notes://1902/a")
        error = await refusal(talk, "resources/subscribe", uri="notes://1903/a")
        assert (error.code, "2 subscriptions" in error.message) == (INVALID_PARAMS, True)


@pytest.mark.defect("S7")
async def test_the_subscriptions_of_all_sessions_have_a_bound() -> None:
    server = library(limits=Limits(max_subscriptions=8))
    async with open_server(server) as join, join() as first:
        async with join() as second:
            for number in range(3):
                await first.request("resources/subscribe", uri=f"notes://190{number}/a")
                await second.request("resources/subscribe", uri=f"notes://190{number}/a")
            error = await refusal(first, "resources/subscribe", uri="notes://1908/a")
            assert (error.code, error.data["limit"]) == (INTERNAL_ERROR, "max_subscriptions")
            await first.request("resources/unsubscribe", uri="notes://1901/a")
            await first.request("resources/subscribe", uri="notes://1908/a")
        with trio.fail_after(30):  # what a session held is free when it ends
            for number in range(3):
                await first.request("resources/subscribe", uri=f"notes://191{number}/a")


async def test_subscriptions_that_share_a_context_are_checked_one_by_one() -> None:
    server, allowed = library(), {"notes://one": True, "notes://two": True}

    async def read() -> str:
        return "x"

    for uri in allowed:
        server.add_resource(uri, read, name=uri, visible=lambda ctx, uri=uri: allowed[uri])
    async with talking(server) as talk:
        for uri in allowed:
            await talk.request("resources/subscribe", uri=uri)
        allowed["notes://one"] = False
        for uri in allowed:
            server.notify_resource_updated(uri)
        await talk.settled()
        assert talk.heard(UPDATED) == [{"uri": "notes://two"}]


async def test_a_resource_function_that_hangs_is_ended(autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.resource("slow://")
    async def slow() -> str:
        await trio.sleep_forever()
        raise AssertionError

    async with talking(server) as talk:
        assert (await refusal(talk, "resources/read", uri="slow://")).code == INTERNAL_ERROR


@pytest.mark.parametrize("cursor", ["", None])
async def test_an_empty_cursor_is_the_first_page(cursor: str | None) -> None:
    async with talking(long_list(25)) as talk:
        first = await talk.request("resources/list")
        assert await talk.request("resources/list", **({} if cursor is None else {"cursor": cursor})) == first


async def test_an_unknown_query_parameter_next_to_a_list_is_another_resource() -> None:
    server = Server("shop")

    @server.resource("shop://items{?tags*}")
    async def items(tags: list[str] | None = None) -> str:
        return str(tags)

    @server.resource("shop://counts{?by*}")
    async def counts(by: dict[str, str]) -> str:
        return str(by)

    async with talking(server) as talk:
        (contents,) = (await talk.request("resources/read", uri="shop://counts?a=1&b=2"))["contents"]
        assert contents["text"] == "{'a': '1', 'b': '2'}"
        for uri in ("shop://items?other=1", "shop://items?tags=a&other=1", "shop://counts?by=1&by=2"):
            error = await refusal(talk, "resources/read", uri=uri)
            assert (error.code, error.message) == (RESOURCE_NOT_FOUND, f"resource not found: {uri!r}")


async def test_a_list_of_query_parameters_is_read() -> None:
    server = Server("shop")

    @server.resource("shop://items{?tags*}")
    async def items(tags: list[str]) -> str:
        return str(tags)

    async with talking(server) as talk:
        (contents,) = (await talk.request("resources/read", uri="shop://items?tags=a&tags=b"))["contents"]
        assert contents["text"] == "['a', 'b']"


async def test_contents_may_have_a_meta_and_other_members_are_ignored_when_read() -> None:
    """`name` and `title` of contents stand in examples of the specification, and in no schema."""
    server = Server("notes")

    @server.resource("notes://one")
    async def one() -> types.TextResourceContents:
        return types.TextResourceContents(uri="notes://one", text="x", meta={"a": 1})

    async with talking(server) as talk:
        (contents,) = (await talk.request("resources/read", uri="notes://one"))["contents"]
        assert contents == {"uri": "notes://one", "text": "x", "_meta": {"a": 1}}
    wire = {"contents": [{"uri": "n://1", "name": "one", "title": "One", "text": "x", "_meta": {"a": 1}}]}
    read = structure(wire, types.ReadResourceResult)
    assert read.contents == (types.TextResourceContents(uri="n://1", text="x", meta={"a": 1}),)


@pytest.mark.defect("D20")
async def test_a_completion_that_returns_one_text_is_one_value() -> None:
    server = Server("notes")

    @server.resource("notes://{day}")
    async def note(day: str) -> str:
        return day

    @note.complete("day")
    async def days(prefix: str) -> str:
        return "today"

    async with talking(server) as talk:
        ref = {"type": "ref/resource", "uri": "notes://{day}"}
        result = await talk.request("completion/complete", ref=ref, argument={"name": "day", "value": ""})
        assert result["completion"]["values"] == ["today"]


async def test_the_uri_of_a_template_reaches_subscribers_whatever_its_variables_contain() -> None:
    server = Server("notes")

    @server.resource("notes://{title}{?page}")
    async def note(title: str, page: int = 1) -> str:
        return f"{title} {page}"

    assert note.uri(title="a b/c?d%ü") == "notes://a%20b%2Fc%3Fd%25%C3%BC"
    async with connect(server) as client:
        uri = note.uri(title="a b/c?d%ü", page=2)
        assert (await client.read_resource(uri)).contents[0] == TextResourceContents(
            uri=uri, text="a b/c?d%ü 2", mime_type="text/plain"
        )
        async with client.listen(resources=[uri]) as changes:
            server.notify_resource_updated(note.uri(title="another"))
            server.notify_resource_updated(note.uri(title="a b/c?d%ü", page=2))
            with trio.fail_after(5):
                assert (await anext(aiter(changes))).uri == uri


def test_a_uri_that_lacks_a_variable_is_refused_with_the_variables_of_the_template() -> None:
    server = Server("notes")

    @server.resource("notes://{title}{?page}")
    async def note(title: str, page: int = 1) -> str:
        return title

    @server.resource("notes://index")
    async def index() -> str:
        return ""

    @server.prompt
    def praise(note: str) -> str:
        return note

    assert index.uri() == "notes://index"
    for wrong in ({}, {"page": 1}, {"title": "a", "pgae": 1}):
        with pytest.raises(TypeError, match=r"notes://\{title\}\{\?page\}: page, title"):
            note.uri(**wrong)
    with pytest.raises(TypeError, match="its URI is notes://index"):
        index.uri(title="a")
    with pytest.raises(TypeError, match="no URI"):
        praise.uri(note="a")


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("changed", "subscribed"),
    [
        ("a b", "a%20b"), ("a%20b", "a b"), ("ü", "%C3%BC"), ("%c3%bc", "%C3%BC"), ("~a", "%7e%61"), ("a%2fb", "a%2Fb"),
    ],
)  # fmt: skip
async def test_a_uri_with_and_without_percent_encoding_is_one_resource(
    changed: str, subscribed: str, protocol: str
) -> None:
    server = Server("notes")

    @server.resource("notes://{title}")
    async def note(title: str) -> str:
        return title

    async with connect(server, protocol=protocol) as client:
        async with client.listen(resources=[f"notes://{subscribed}"]) as changes:
            server.notify_resource_updated("notes://another")
            server.notify_resource_updated(f"notes://{changed}")
            with trio.fail_after(5):
                assert (await anext(aiter(changes))).uri == f"notes://{subscribed}"


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_client_that_wrote_a_uri_in_two_ways_hears_of_both(protocol: str) -> None:
    server = Server("notes")

    @server.resource("notes://{title}")
    async def note(title: str) -> str:
        return title

    uris = {"notes://a b", "notes://a%20b"}
    async with connect(server, protocol=protocol) as client:
        async with client.listen(resources=sorted(uris)) as changes:
            server.notify_resource_updated("notes://a b")
            with trio.fail_after(5):
                heard = aiter(changes)
                assert {(await anext(heard)).uri, (await anext(heard)).uri} == uris


async def test_a_session_is_notified_under_the_spelling_that_its_client_wrote() -> None:
    server = Server("notes")

    @server.resource("notes://{title}")
    async def note(title: str) -> str:
        return title

    @server.tool
    async def change(ctx: Context) -> None:
        ctx.session.notify_resource_updated("notes://caf%c3%a9", {"n": 1})

    async with talking(server) as talk:
        await talk.request("resources/subscribe", uri="notes://café")
        await talk.request("resources/subscribe", uri="notes://another")
        await talk.call("change")
        assert talk.notified == [("notifications/resources/updated", {"uri": "notes://café", "_meta": {"n": 1}})]
