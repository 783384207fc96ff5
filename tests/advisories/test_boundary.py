"""Published ways past the boundary to browsers and networks (V30 to V37): each attack must fail."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from mcptrio.server.app import App
from tests.bad_inputs.catalogue import Case
from tests.bad_inputs.process import Servers
from tests.bad_inputs.program import make_server
from tests.bad_inputs.runner import run_request, run_socket
from tests.bad_inputs.speaker import Speaker
from tests.bad_inputs.wire import Connection
from tests.transports.app_for_tests import open_endpoint
from tests.transports.test_http_refusals import head

from .cases import cases

# -- V30


@cases("H03")
def test_neg_host_evil_421(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("H01")
def test_neg_origin_evil_403(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("H02")
def test_neg_origin_null_403(case: Case, servers: Servers) -> None:
    run_request(case, servers)


async def test_neg_host_is_checked_without_a_server_too() -> None:
    """The endpoint itself checks it, so no engine can leave it out."""
    async with open_endpoint() as endpoint:
        for method in ("GET", "POST", "DELETE"):
            refusal = endpoint.refuse_early(head(method, host="evil.example"))
            assert refusal is not None
            assert refusal.status == 421


# -- V31


@cases("K01")
def test_neg_ws_origin_evil_403(case: Case, servers: Servers) -> None:
    run_socket(case, servers)


# -- V32


@cases("H04")
def test_neg_host_port_not_numeric(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V33


@cases("H07")
def test_neg_text_plain_post_415(case: Case, servers: Servers) -> None:
    run_request(case, servers)


def test_neg_no_page_is_let_in_by_cors(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        own = speaker.exchange(speaker.message("tools/list"), headers={"origin": f"http://127.0.0.1:{server.port}"})
        assert own.status == 200
        assert not [name for name in own.headers if name.startswith("access-control")]
        speaker.close()


# -- V34


@cases("H21", "H24")
def test_neg_cl_te_400_close(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("H25")
def test_neg_te_http10(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V35


@cases("J10")
def test_neg_duplicate_key(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("J11")
def test_neg_key_case(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("J12")
def test_neg_lone_surrogate(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V36


@cases("H15", "H16", "H17", "H18", "H19")
def test_neg_mcp_name_mismatch(case: Case, servers: Servers) -> None:
    run_request(case, servers)


async def test_neg_mismatch_under_a_head_that_was_let_through_before(engine: str) -> None:
    """A client repeats its head; what was found to agree with one body says nothing of the next."""
    server = make_server()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))
        speaker = Speaker(bound[0].port, "2026-07-28")
        good = speaker.message("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
        other_name = speaker.message("tools/call", {"name": "fail", "arguments": {"text": "hello"}})
        other_method = speaker.message("prompts/get", {"name": "echo", "arguments": {"text": "hell"}})
        other_date = good.replace(b"2026-07-28", b"2026-07-29")
        assert {len(body) for body in (other_name, other_method, other_date)} == {len(good)}

        def talk() -> list[int]:
            head, statuses = speaker.head("POST", good), []
            with Connection(speaker.port) as connection:
                for body in (good, good, other_name, good, other_method, good, other_date, good):
                    connection.send(head + body)
                    statuses.append(connection.read().status)
            return statuses

        assert await trio.to_thread.run_sync(talk) == [200, 200, 400, 200, 400, 200, 400, 200]
        nursery.cancel_scope.cancel()


async def test_neg_param_header_lookup_fails_closed(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it cannot be found out which arguments have headers, the call is not made."""

    def broken(self: Any, tool: str) -> Any:
        raise RuntimeError("the list is being changed")

    monkeypatch.setattr(App, "parameter_headers", broken)
    server = make_server()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))

        def call() -> Any:
            speaker = Speaker(bound[0].port, "2026-07-28")
            body = speaker.message("tools/call", {"name": "routed", "arguments": {"region": "eu"}})
            with Connection(speaker.port) as connection:
                connection.send(speaker.head("POST", body, headers={"mcp-param-region": "us"}) + body)
                return connection.read()

        reply = await trio.to_thread.run_sync(call)
        assert reply.status >= 400
        assert b'"content"' not in reply.body
        nursery.cancel_scope.cancel()


# -- V37


@cases("H07: a form with files", "H07: a form")
def test_neg_multipart_415(case: Case, servers: Servers) -> None:
    run_request(case, servers)


def test_neg_a_range_header_is_ignored(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        ranges = "bytes=" + ",".join(f"{n}-" for n in range(500))
        reply = speaker.exchange(speaker.message("tools/list"), headers={"range": ranges})
        assert reply.status == 200
        speaker.close()
