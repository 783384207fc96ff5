"""The driver around the flows, on a clock of its own: one flight, no queue, bounded patience."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio
from attrs import define, evolve, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.auth import FIRST_SEEN, ClientCredentials, EnterpriseManaged, OAuth
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.steps import Fetch, Flow
from mcptrio.auth.client.storage import MemoryStorage
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens
from mcptrio.auth.ssrf import FetchPolicy
from mcptrio.errors import DeclarationError, LocalProtocolError
from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse
from mcptrio.transports.oauth import browser
from mcptrio.transports.oauth.fetching import MAX_BODY, MAX_TIME, Fetcher
from mcptrio.transports.oauth.running import Desk
from mcptrio.transports.oauth.signer import Signer

URL = "https://mcp.example/mcp"


def request() -> AuthRequest:
    return AuthRequest(method="POST", url=URL)


def tokens(name: str, **more: Any) -> Tokens:
    return Tokens(access_token=name, issuer="https://as.example", resource=URL, client_id="c", **more)


@define
class FakePlan:
    """Gives numbered tokens, each after the user's supplier let it."""

    work: Callable[[str], Any]
    own: Credentials | None = None
    life: float | None = None
    needs: list[Need] = field(factory=list)

    def obtain(self, need: Need) -> Flow[Tokens]:
        from mcptrio.auth.client.steps import supply

        self.needs.append(need)
        name = yield from supply(self.work, f"token{len(self.needs)}")
        return tokens(name, expires_at=None if self.life is None else need.world.now() + self.life)

    def renew(self, need: Need) -> Flow[Tokens | None]:
        found = yield from self.obtain(need)
        return found


async def slow(name: str) -> str:
    await trio.sleep(10)
    return name


def signer(work: Callable[[str], Any] = slow, **more: Any) -> Signer:
    life = more.pop("life", None)
    return Signer(FakePlan(work, life=life), "tokens", MemoryStorage(), Desk(), now=trio.current_time, **more)


def refusing(to: AuthRequest | None = None, *, status: int = 401, header: str = "Bearer") -> AuthResponse:
    return AuthResponse(request=to or request(), status=status, headers={"www-authenticate": header})


async def exchange(auth: Signer, good: Callable[[str], bool] = bool, **refusal: Any) -> str | None:
    """What the transport does: the token that was taken in the end, or None when it gave up."""
    about = request()
    for _ in range(20):
        sent = (await auth.authorize(about)).get("Authorization", "")
        token = sent.removeprefix("Bearer ")
        if token and good(token):
            await auth.on_response(AuthResponse(request=about, status=200, headers={}))
            return token
        if not await auth.on_response(refusing(about, **refusal)):
            return None
    raise AssertionError("it never gives up")


async def test_many_requests_sign_in_once(autojump_clock: MockClock) -> None:
    auth, taken = signer(), []

    async def one() -> None:
        taken.append(await exchange(auth))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert taken == ["token1"] * 20
    assert trio.current_time() < 11


async def test_a_late_refusal_of_a_replaced_token_only_means_to_try_again(autojump_clock: MockClock) -> None:
    auth = signer()
    assert await exchange(auth) == "token1"

    async def late(task_status: Any) -> None:
        about = request()
        await auth.authorize(about)
        task_status.started()
        await trio.sleep(100)  # its answer is on its way while somebody else signs in again
        assert await auth.on_response(refusing(about))

    async with trio.open_nursery() as nursery:
        await nursery.start(late)
        assert await exchange(auth, lambda token: token != "token1") == "token2"
    assert isinstance(auth.plan, FakePlan)
    assert len(auth.plan.needs) == 2


async def test_when_the_one_who_signs_in_is_cancelled_another_takes_over(autojump_clock: MockClock) -> None:
    auth, taken = signer(), []
    async with trio.open_nursery() as nursery:

        async def impatient() -> None:
            with trio.move_on_after(5):
                await exchange(auth)

        async def patient() -> None:
            await wait_all_tasks_blocked()
            taken.append(await exchange(auth))

        nursery.start_soon(impatient)
        nursery.start_soon(patient)
    assert taken == ["token2"]


async def test_a_failed_sign_in_fails_everybody_who_waits(autojump_clock: MockClock) -> None:
    async def fail(_: str) -> str:
        await trio.sleep(1)
        raise AuthorizationFailed("no", error="access_denied")

    auth, errors = signer(fail), []

    async def one() -> None:
        with pytest.raises(AuthorizationFailed) as caught:
            await exchange(auth)
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert [error.error for error in errors] == ["access_denied"] * 5
    assert len({id(error) for error in errors}) == 5  # an exception belongs to one task
    assert len(auth.plan.needs) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", ["access_denied", "nobody_came"])
async def test_a_person_who_said_no_is_left_in_peace_for_a_while(error: str, autojump_clock: MockClock) -> None:
    """A client that reconnects by itself would otherwise open one page after the other."""

    def decline(_: str) -> str:
        raise AuthorizationFailed("no", error=error)

    auth = signer(decline)
    for _ in range(5):
        with pytest.raises(AuthorizationFailed, match="no"):
            await exchange(auth)
        await trio.sleep(10)
    assert len(auth.plan.needs) == 1  # type: ignore[attr-defined]
    await trio.sleep(60)
    with pytest.raises(AuthorizationFailed):
        await exchange(auth)
    assert len(auth.plan.needs) == 2  # type: ignore[attr-defined]


async def test_what_was_tried_for_one_request_is_not_held_against_the_next(autojump_clock: MockClock) -> None:
    auth = signer(lambda name: name)
    for _ in range(3):
        about = request()  # it is signed in for twice, and given up without another answer
        for _ in range(2):
            await auth.authorize(about)
            assert await auth.on_response(refusing(about))
    assert not auth._sent or list(auth._sent) == [about]  # nothing is kept of requests that are gone


async def test_a_websocket_is_authorized_as_the_get_that_it_begins_with() -> None:
    auth = signer(lambda name: name)
    shake = AuthRequest(method="GET", url="wss://mcp.example/mcp")
    assert await auth.authorize(shake) == {}
    assert await auth.on_response(AuthResponse(request=shake, status=401, headers={}))
    assert await auth.authorize(shake) == {"Authorization": "Bearer token1"}
    assert auth.endpoint == URL


async def test_a_token_near_its_end_is_renewed_while_others_go_on_with_it(autojump_clock: MockClock) -> None:
    auth = signer(life=100)
    assert await exchange(auth) == "token1"
    await trio.sleep(80)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange, auth)
        await wait_all_tasks_blocked()
        assert await exchange(auth) == "token1"  # did not wait for the renewal
        assert trio.current_time() == began
    assert await exchange(auth) == "token2"


async def test_an_expired_token_is_never_sent(autojump_clock: MockClock) -> None:
    auth = signer(life=100)
    await exchange(auth)
    await trio.sleep(1000)
    assert (await auth.authorize(request()))["Authorization"] == "Bearer token2"


async def test_a_renewal_that_fails_early_does_no_harm(autojump_clock: MockClock) -> None:
    auth = signer(life=100)
    await exchange(auth)

    def broken(_: str) -> str:
        raise FetchFailed("the authorization server is down")

    auth.plan = evolve(auth.plan, work=broken)  # type: ignore[type-var]
    await trio.sleep(80)
    assert await exchange(auth) == "token1"
    await trio.sleep(80)
    with pytest.raises(AuthorizationFailed):
        await auth.authorize(request())


async def test_a_fresh_token_that_is_refused_twice_is_the_end(autojump_clock: MockClock) -> None:
    auth = signer()
    assert await exchange(auth, lambda _: False) is None
    assert [need.may_refresh for need in auth.plan.needs] == [True, False]  # type: ignore[attr-defined]


async def test_stepping_up_ends_and_is_not_begun_again(autojump_clock: MockClock) -> None:
    """With the sign-in before, three authorizations: then it is a refusal, and stays one for these scopes."""
    auth = signer()
    await exchange(auth)
    challenge = 'Bearer error="insufficient_scope", scope="admin"'
    for _ in range(3):
        assert await exchange(auth, lambda _: False, status=403, header=challenge) is None
    assert len(auth.plan.needs) == 3  # type: ignore[attr-defined]
    other = 'Bearer error="insufficient_scope", scope="write"'
    assert await exchange(auth, lambda token: token == "token4", status=403, header=other) == "token4"
    assert auth.plan.needs[-1].step_up  # type: ignore[attr-defined]


@pytest.mark.parametrize("header", ["", "Bearer", 'Bearer error="invalid_token"', 'Basic error="insufficient_scope"'])
async def test_a_plain_403_is_an_answer(header: str, autojump_clock: MockClock) -> None:
    auth = signer()
    await exchange(auth)
    assert not await auth.on_response(refusing(status=403, header=header))
    assert len(auth.plan.needs) == 1  # type: ignore[attr-defined]


async def test_tokens_of_another_run_are_used_again(autojump_clock: MockClock) -> None:
    first = signer()
    await exchange(first)
    second = signer()
    second.storage = first.storage
    assert await exchange(second) == "token1"
    assert second.plan.needs == []  # type: ignore[attr-defined]


async def test_an_object_belongs_to_one_server() -> None:
    auth = signer()
    assert await auth.authorize(request()) == {}
    with pytest.raises(LocalProtocolError, match="one object for each server"):
        await auth.authorize(AuthRequest(method="POST", url="https://other.example/mcp"))


async def test_no_token_goes_over_plain_http() -> None:
    auth = signer()
    plain = AuthRequest(method="POST", url="http://mcp.example/mcp")
    assert await auth.authorize(plain) == {}
    with pytest.raises(AuthorizationFailed, match="not https"):
        await auth.on_response(AuthResponse(request=plain, status=401, headers={}))


async def test_a_person_who_never_comes_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    from mcptrio.auth.client.steps import Visit
    from mcptrio.transports.oauth.running import Runner

    async def never(_: str) -> str:
        await trio.sleep_forever()
        raise AssertionError

    def flow() -> Flow[None]:
        yield Visit(url="https://as.example/authorize", state="s")

    desk = Desk(visit=never, patience=300)
    runner = Runner(Fetcher(FetchPolicy()), MemoryStorage(), desk)
    with pytest.raises(AuthorizationFailed, match="300 s"):
        await runner.run(flow())


# -- declarations


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OAuth(client_secret="s"), "client_id"),
        (lambda: OAuth(client_id="c", client_secret="s"), "issuer"),
        (lambda: ClientCredentials(client_id="c"), "either"),
        (lambda: ClientCredentials(client_id="c", client_secret="s"), "issuer"),
        (lambda: OAuth(scopes="read"), "list"),
        (lambda: OAuth(client_metadata_url="http://x.example/c"), "https"),
        (lambda: EnterpriseManaged(client_id="c", idp_client_id="i", id_token="t"), "idp_issuer"),
    ],
)
def test_a_wrong_declaration_says_how_to_mend_it(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        make()


def test_nothing_printed_shows_a_secret() -> None:
    for auth in (
        OAuth(client_id="c", client_secret="hush", issuer=FIRST_SEEN),
        ClientCredentials(client_id="c", client_secret="hush", issuer="https://as.example"),
    ):
        assert "hush" not in repr(auth) + repr(auth._signer)


# -- fetching


def fetcher(handler: Callable[[httpx2.Request], Any]) -> Fetcher:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return Fetcher(FetchPolicy(), lent=client)


STEP = Fetch(what="the metadata", url="https://as.example/m")


async def test_a_page_that_drips_is_given_up(autojump_clock: MockClock) -> None:
    class Drip(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await trio.sleep(1)
                yield b" "

    with pytest.raises(FetchFailed, match="longer than"):
        await fetcher(lambda _: httpx2.Response(200, stream=Drip())).fetch(STEP)
    assert trio.current_time() == pytest.approx(MAX_TIME, abs=1)


async def test_a_page_that_is_too_large_is_given_up() -> None:
    async def body() -> Any:
        for _ in range(MAX_BODY):
            yield b"x" * 1024

    with pytest.raises(FetchFailed, match="more than"):
        await fetcher(lambda _: httpx2.Response(200, content=body())).fetch(STEP)


async def test_a_page_that_would_unfold_is_not_unfolded() -> None:
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
async def test_a_refused_url_is_not_asked(url: str) -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise AssertionError("asked")

    with pytest.raises(FetchFailed, match="not fetched"):
        await fetcher(handler).fetch(Fetch(what="the metadata", url=url))


class Resolver(trio.abc.HostnameResolver):
    """Gives one answer after the other, as a name that is bound anew would."""

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
async def test_a_name_that_leads_inside_is_not_connected_to(address: str) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(address))
    with pytest.raises(FetchFailed, match="not public"):
        await Fetcher(FetchPolicy()).fetch(STEP)


# -- the browser


@pytest.mark.parametrize(
    ("platform", "program"), [("linux", "xdg-open"), ("darwin", "open"), ("freebsd14", "xdg-open")]
)
def test_a_page_is_one_argument(platform: str, program: str) -> None:
    url = "https://as.example/a?x=$(id)&y=`id`;z='"
    assert browser.command_for(url, platform) == [program, url]
    assert browser.command_for(url, "win32") is None


async def test_neg_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    async def record(command: Any, **settings: Any) -> subprocess.CompletedProcess[bytes]:
        ran.append((command, settings))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(trio, "run_process", record)
    monkeypatch.setattr(browser, "command_for", lambda url: ["xdg-open", url])
    assert await browser.open_page("https://as.example/;id")
    ((command, settings),) = ran
    assert command == ["xdg-open", "https://as.example/;id"]
    assert "shell" not in settings


async def test_without_a_browser_the_page_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "command_for", lambda url: ["mcptrio-no-such-program", url])
    assert not await browser.open_page("https://as.example/")


def test_a_setting_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TypeError, match="storge"):
        OAuth(storge=MemoryStorage())  # type: ignore[call-arg]
