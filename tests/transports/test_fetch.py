"""Requests to authorization servers: limits of time and size, redirects, and addresses that are refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from mcptrio.auth.client.errors import FetchFailed
from mcptrio.auth.client.steps import Fetch
from mcptrio.auth.ssrf import FetchPolicy
from mcptrio.transports.fetch import MAX_BODY, Fetcher


def fetcher(handler: Callable[[httpx2.Request], Any]) -> Fetcher:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return Fetcher(timeout=10, policy=FetchPolicy(), max_redirects=4, lent=client)


STEP = Fetch(what="the metadata", url="https://as.example/m")


async def test_a_slow_page_times_out(autojump_clock: MockClock) -> None:
    class Drip(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await trio.sleep(1)
                yield b" "

    with pytest.raises(FetchFailed, match="longer than"):
        await fetcher(lambda _: httpx2.Response(200, stream=Drip())).fetch(STEP)
    assert trio.current_time() == pytest.approx(10, abs=1)


async def test_a_page_that_is_too_large_is_refused() -> None:
    async def body() -> Any:
        for _ in range(MAX_BODY):
            yield b"x" * 1024

    with pytest.raises(FetchFailed, match="more than"):
        await fetcher(lambda _: httpx2.Response(200, content=body())).fetch(STEP)


async def test_a_compressed_page_is_refused() -> None:
    """A few bytes of gzip can hold a gigabyte."""
    packed = gzip.compress(b"{}")
    reply = httpx2.Response(200, content=packed, headers={"content-encoding": "gzip"})
    with pytest.raises(FetchFailed, match="compressed"):
        await fetcher(lambda _: reply).fetch(STEP)


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/m",
        "http://as.example/m",
        "https://as.example:8443/m",
        "https://127.0.0.1/m",
        "//evil.example/m",
        "javascript:x",
    ],
)
async def test_neg_redirect_cross_origin(location: str) -> None:
    asked: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(307, headers={"location": location})

    with pytest.raises(FetchFailed):
        await fetcher(handler).fetch(STEP)
    assert asked == ["https://as.example/m"]


async def test_redirects_within_an_origin_are_followed_a_few_times() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/m":
            return httpx2.Response(302, headers={"location": "/n"})
        return httpx2.Response(200, json={"a": 1})

    assert (await fetcher(handler).fetch(STEP)).document() == {"a": 1}
    with pytest.raises(FetchFailed, match="too often"):
        await fetcher(lambda _: httpx2.Response(302, headers={"location": "/m"})).fetch(STEP)


async def test_a_post_is_never_redirected() -> None:
    """Its body holds codes and secrets."""
    reply = httpx2.Response(307, headers={"location": "https://as.example/other"})
    step = Fetch(what="the token request", method="POST", url="https://as.example/t", form={"code": "c"})
    assert (await fetcher(lambda _: reply).fetch(step)).status == 307


@pytest.mark.parametrize("url", ["https://127.0.0.1/m", "http://as.example/m", "https://0x7f.1/", "file:///etc/passwd"])
async def test_a_refused_url_is_not_fetched(url: str) -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise AssertionError("asked")

    with pytest.raises(FetchFailed, match="not fetched"):
        await fetcher(handler).fetch(Fetch(what="the metadata", url=url))


class Resolver(trio.abc.HostnameResolver):
    """Gives one answer after the other, as DNS rebinding does."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(host)
        address = self.answers.pop(0)
        return [(trio.socket.AF_INET, trio.socket.SOCK_STREAM, 6, "", (address, port))]

    async def getnameinfo(self, *_: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1"])
async def test_a_name_of_a_private_address_is_not_connected_to(address: str) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(address))
    with pytest.raises(FetchFailed, match="not public"):
        await Fetcher(timeout=10, policy=FetchPolicy()).fetch(STEP)
