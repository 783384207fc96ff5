"""A web page of an allowed origin uses the server in a real browser; a page of another origin can read nothing.

It needs the extra `browser` and a Chromium that is installed. Without them these tests are skipped; where the variable
`REQUIRE_BROWSER` is set, they fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.ports import free_port

from .server_process import PROGRAMS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
CLIENT = """
    const TYPES = 'application/json, text/event-stream';
    async function post(url, message, headers = {}) {
        return await fetch(url, {method: 'POST', body: JSON.stringify({jsonrpc: '2.0', ...message}),
                                 headers: {'content-type': 'application/json', accept: TYPES, ...headers}});
    }
    async function initialize(url, version, more = {}) {
        const params = {protocolVersion: version, capabilities: {}, clientInfo: {name: 'page', version: '1'}};
        const reply = await post(url, {id: 0, method: 'initialize', params}, more);
        const result = (await reply.json()).result;
        const session = {...more, 'mcp-session-id': reply.headers.get('mcp-session-id'),
                         'mcp-protocol-version': result.protocolVersion};
        const told = await post(url, {method: 'notifications/initialized'}, session);
        return {session, status: told.status, version: result.protocolVersion};
    }
    function call(id, name, args) {
        return {id, method: 'tools/call', params: {name, arguments: args, _meta: {progressToken: 't'}}};
    }
    async function events(reply, until) {  // reads whole events until there are enough
        const found = [], reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let text = ''; found.length < until; ) {
            const {value, done} = await reader.read();
            if (done) break;
            text += value;
            for (let end; (end = text.indexOf('\\n\\n')) >= 0; text = text.slice(end + 2)) {
                const lines = text.slice(0, end).split('\\n');
                const field = name => lines.filter(l => l.startsWith(name + ': ')).map(l => l.slice(name.length + 2));
                if (field('data').join('')) found.push({id: field('id')[0], ...JSON.parse(field('data').join(''))});
            }
        }
        await reader.cancel();
        return found;
    }
"""
USE = """
    async ([url, version, more]) => {
        const {session, status, version: spoken} = await initialize(url, version, more);
        const sum = await (await post(url, call(1, 'add', {a: 2, b: 3}), session)).json();
        const stream = await post(url, call(2, 'count', {to: 6}), session);
        const first = await events(stream, 2);           // then the connection is cut
        const headers = {accept: 'text/event-stream', 'last-event-id': first.at(-1).id, ...session};
        const rest = await events(await fetch(url, {headers}), Infinity);
        const gone = await fetch(url, {method: 'DELETE', headers: session});
        const after = await post(url, call(3, 'add', {a: 1, b: 1}), session);
        return {
            session: session['mcp-session-id'], status, spoken, sum: sum.result,
            type: stream.headers.get('content-type'),
            progress: [...first, ...rest].filter(e => e.params).map(e => e.params.progress),
            result: rest.at(-1).result, gone: gone.status, after: [after.status, (await after.json()).error.message],
        };
    }
"""
STATELESS = """
    async ([url]) => {
        const meta = {'io.modelcontextprotocol/protocolVersion': '2026-07-28',
                      'io.modelcontextprotocol/clientInfo': {name: 'page', version: '1'},
                      'io.modelcontextprotocol/clientCapabilities': {}};
        const message = call(1, 'add', {a: 2, b: 3});
        message.params._meta = meta;
        const headers = {'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'add'};
        return await (await post(url, message, headers)).json();
    }
"""
ATTACK = """
    async ([url, session]) => {
        const attempt = async make => { try { const r = await make(); return [r.type, r.status, await r.text()]; }
                                        catch (error) { return [error.name]; } };
        const headers = {'content-type': 'application/json', accept: TYPES};
        const body = JSON.stringify({jsonrpc: '2.0', ...call(1, 'add', {a: 2, b: 3})});
        const named = {...headers, 'mcp-session-id': session};
        const socket = new Promise(done => { const s = new WebSocket(url.replace('http', 'ws'), 'mcp');
                                             s.onopen = () => done('open'); s.onerror = () => done('error'); });
        const source = new Promise(done => { const s = new EventSource(url.replace('/mcp', '/sse'));
                                             s.onmessage = s.onopen = () => done('open');
                                             s.onerror = () => { s.close(); done('error'); }; });
        return {
            initialize: await attempt(() => initialize(url, '2025-11-25')),
            call: await attempt(() => fetch(url, {method: 'POST', headers: named, body})),
            get: await attempt(() => fetch(url, {headers: {accept: 'text/event-stream', 'mcp-session-id': session}})),
            remove: await attempt(() => fetch(url, {method: 'DELETE', headers: {'mcp-session-id': session}})),
            metrics: await attempt(() => fetch(url.replace('/mcp', '/metrics'))),
            plain: await attempt(() => fetch(url, {method: 'POST', mode: 'no-cors', body})),
            socket: await socket, source: await source,
        };
    }
"""


def missing() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -e '.[browser]'"
    if not any(map(shutil.which, CHROMIUMS)):
        return f"no Chromium is installed ({', '.join(CHROMIUMS)})"
    return None


class Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(f"<!doctype html><link rel=icon href=data:><script>{CLIENT}</script>".encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def origins() -> Iterator[tuple[str, str]]:
    """Two web sites: their ports make them different origins."""
    sites = [ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(2)]
    for site in sites:
        threading.Thread(target=site.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{sites[0].server_port}", f"http://127.0.0.1:{sites[1].server_port}"
    for site in sites:
        site.shutdown()
        site.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if (reason := missing()) is not None:
        pytest.fail(reason) if os.environ.get("REQUIRE_BROWSER") else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, CHROMIUMS)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        yield chromium
        chromium.close()


@pytest.fixture
def serve(engine: str, origins: tuple[str, str]) -> Iterator[Any]:
    """Start a server that allows the first origin; return its URL."""
    started = []

    def start(auth: str = "") -> str:
        port = free_port()
        given = {"PAGES_ORIGIN": origins[0], "PAGES_ENGINE": engine, "PAGES_PORT": str(port), "PAGES_AUTH": auth}
        started.append(subprocess.Popen([sys.executable, PROGRAMS / "for_pages.py"], env={**os.environ, **given}))
        for _ in range(400):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
                return f"http://127.0.0.1:{port}/mcp"
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server did not start")

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


def open_page(browser: Any, origin: str) -> Any:
    page = browser.new_page()
    page.goto(origin, wait_until="load")
    return page


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_an_allowed_page_initializes_calls_streams_resumes_and_deletes(
    browser: Any, origins: tuple[str, str], serve: Any, version: str
) -> None:
    page = open_page(browser, origins[0])
    found = page.evaluate(USE, [serve(), version, {}])
    assert found["session"]
    assert (found["status"], found["spoken"]) == (202, version)
    assert found["sum"]["content"] == [{"type": "text", "text": "5"}]
    assert found["type"] == "text/event-stream"
    assert found["progress"] == list(range(6)), "nothing is lost or repeated"
    assert found["result"]["content"] == [{"type": "text", "text": "counted to 6"}]
    assert found["gone"] == 200
    assert found["after"] == [404, "there is no such session; start a new one with initialize"]
    page.close()


def test_an_allowed_page_calls_without_a_session(browser: Any, origins: tuple[str, str], serve: Any) -> None:
    page = open_page(browser, origins[0])
    assert page.evaluate(STATELESS, [serve()])["result"]["content"] == [{"type": "text", "text": "5"}]
    page.close()


def test_a_page_with_a_token_is_served_and_one_without_reads_why_not(
    browser: Any, origins: tuple[str, str], serve: Any
) -> None:
    url = serve("on")
    page = open_page(browser, origins[0])
    refused = page.evaluate(
        "async ([url]) => { const r = await post(url, {id: 0, method: 'ping'});"
        "return [r.status, r.headers.get('www-authenticate'), (await r.json()).error.message]; }",
        [url],
    )
    assert refused[0] == 401
    assert refused[1].startswith("Bearer")
    assert refused[2]
    found = page.evaluate(USE, [url, "2025-11-25", {"authorization": "Bearer a-token-for-pages"}])
    assert found["progress"] == list(range(6))
    page.close()


def test_a_page_of_another_origin_reads_nothing_and_runs_nothing(
    browser: Any, origins: tuple[str, str], serve: Any
) -> None:
    url = serve()
    good = open_page(browser, origins[0])
    session = good.evaluate("async ([url]) => (await initialize(url, '2025-11-25')).session", [url])
    evil = open_page(browser, origins[1])
    found = evil.evaluate(ATTACK, [url, session["mcp-session-id"]])
    assert found.pop("plain") == ["opaque", 0, ""]
    assert (found.pop("socket"), found.pop("source")) == ("error", "error")
    assert found == {key: ["TypeError"] for key in ("initialize", "call", "get", "remove", "metrics")}
    ask = "async ([url, s]) => (await (await post(url, call(9, 'counted', {}), s)).json()).result.content[0].text"
    assert good.evaluate(ask, [url, session]) == "0", "the session is still there, and nothing was called"
    evil.close()
    good.close()
