"""The tokens of a client: one flow at a time, no queue, bounded attempts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from attrs import define, evolve, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.dpop import new_key
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.steps import Flow, Lock, Visit, supply
from mcptrio.auth.client.storage import MemoryStorage
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens
from mcptrio.errors import LocalProtocolError
from mcptrio.transports.fetch import Fetcher
from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse
from mcptrio.transports.oauth.runner import Runner, SignInSettings
from mcptrio.transports.oauth.token_source import TokenSource

URL = "https://mcp.example/mcp"


def request() -> AuthRequest:
    return AuthRequest(method="POST", url=URL)


def tokens(name: str, **more: Any) -> Tokens:
    return Tokens(access_token=name, issuer="https://as.example", resource=URL, client_id="c", **more)


@define
class FakeGrant:
    """Gives numbered tokens, each after the user's supplier let it."""

    work: Callable[[str], Any]
    own: Credentials | None = None
    lifetime: float | None = None
    needs: list[Need] = field(factory=list)

    def obtain(self, need: Need) -> Flow[Tokens]:
        self.needs.append(need)
        name = yield from supply(self.work, f"token{len(self.needs)}")
        now = need.inputs.now()
        return tokens(name, obtained_at=now, expires_at=None if self.lifetime is None else now + self.lifetime)

    def renew(self, need: Need) -> Flow[Tokens | None]:
        found = yield from self.obtain(need)
        return found


async def slow(name: str) -> str:
    await trio.sleep(10)
    return name


def signer(work: Callable[[str], Any] = slow, **more: Any) -> TokenSource:
    lifetime = more.pop("lifetime", None)
    return TokenSource(
        FakeGrant(work, lifetime=lifetime), "tokens", MemoryStorage(), SignInSettings(), now=trio.current_time, **more
    )


def refusing(to: AuthRequest | None = None, *, status: int = 401, header: str = "Bearer") -> AuthResponse:
    return AuthResponse(request=to or request(), status=status, headers={"www-authenticate": header})


async def exchange(auth: TokenSource, good: Callable[[str], bool] = bool, **refusal: Any) -> str | None:
    """Ask for tokens as the transport does: return the accepted token, or None when it gave up."""
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
        await trio.sleep(100)  # its answer is on its way while another request signs in again
        assert await auth.on_response(refusing(about))

    async with trio.open_nursery() as nursery:
        await nursery.start(late)
        assert await exchange(auth, lambda token: token != "token1") == "token2"
    assert isinstance(auth.grant, FakeGrant)
    assert len(auth.grant.needs) == 2


@pytest.mark.defect("E09")
async def test_a_sign_in_goes_on_when_the_request_that_began_it_is_cancelled(autojump_clock: MockClock) -> None:
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
    assert taken == ["token1"]
    assert trio.current_time() == 10


@pytest.mark.defect("E09")
async def test_a_sign_in_that_no_request_waits_for_still_serves_the_next_one(autojump_clock: MockClock) -> None:
    auth = signer()
    with trio.move_on_after(5):
        await exchange(auth)
    await trio.sleep(20)
    assert (await auth.authorize(request()))["Authorization"] == "Bearer token1"
    assert len(auth.grant.needs) == 1  # type: ignore[attr-defined]


async def test_any_exception_of_a_sign_in_reaches_the_requests_that_wait(autojump_clock: MockClock) -> None:
    async def broken(_: str) -> str:
        await trio.sleep(1)
        raise SystemExit("the user's function ended the program")

    auth = signer(broken)
    with pytest.raises(AuthorizationFailed, match="the user's function") as caught:
        await exchange(auth)
    assert isinstance(caught.value.__cause__, SystemExit)


async def test_a_failed_sign_in_fails_every_waiting_request(autojump_clock: MockClock) -> None:
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
    assert len(auth.grant.needs) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", ["access_denied", "sign_in_timeout"])
async def test_a_user_who_declined_is_not_asked_again_for_a_while(error: str, autojump_clock: MockClock) -> None:
    """A client that reconnects by itself would otherwise open one page after the other."""

    def decline(_: str) -> str:
        raise AuthorizationFailed("no", error=error)

    auth = signer(decline)
    for _ in range(5):
        with pytest.raises(AuthorizationFailed, match="no"):
            await exchange(auth)
        await trio.sleep(10)
    assert len(auth.grant.needs) == 1  # type: ignore[attr-defined]
    await trio.sleep(60)
    with pytest.raises(AuthorizationFailed):
        await exchange(auth)
    assert len(auth.grant.needs) == 2  # type: ignore[attr-defined]


async def test_failed_attempts_of_one_request_do_not_count_for_the_next(autojump_clock: MockClock) -> None:
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
    auth = signer(lifetime=100)
    assert await exchange(auth) == "token1"
    await trio.sleep(80)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange, auth)
        await wait_all_tasks_blocked()
        assert await exchange(auth) == "token1"  # did not wait for the renewal
        assert trio.current_time() == began
    await trio.sleep(11)
    assert await exchange(auth) == "token2"


async def test_an_expired_token_is_never_sent(autojump_clock: MockClock) -> None:
    auth = signer(lifetime=100)
    await exchange(auth)
    await trio.sleep(1000)
    assert (await auth.authorize(request()))["Authorization"] == "Bearer token2"


async def test_a_renewal_that_fails_early_does_no_harm(autojump_clock: MockClock) -> None:
    auth = signer(lifetime=100)
    await exchange(auth)

    def broken(_: str) -> str:
        raise FetchFailed("the authorization server is down")

    auth.grant = evolve(auth.grant, work=broken)  # type: ignore[type-var]
    await trio.sleep(80)
    assert await exchange(auth) == "token1"
    await trio.sleep(80)
    with pytest.raises(AuthorizationFailed, match="is down"):
        await exchange(auth, lambda _: False)  # the server refuses the expired token


async def test_a_fresh_token_that_is_refused_twice_is_the_end(autojump_clock: MockClock) -> None:
    auth = signer()
    assert await exchange(auth, lambda _: False) is None
    assert [need.may_refresh for need in auth.grant.needs] == [True, False]  # type: ignore[attr-defined]


@pytest.mark.defect("E01")
async def test_concurrent_step_ups_share_one_sign_in(autojump_clock: MockClock) -> None:
    auth, taken = signer(), []
    await exchange(auth)
    challenge = 'Bearer error="insufficient_scope", scope="admin"'

    async def one() -> None:
        taken.append(await exchange(auth, lambda token: token == "token2", status=403, header=challenge))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)
    assert taken == ["token2"] * 8
    assert len(auth.grant.needs) == 2  # type: ignore[attr-defined]


@pytest.mark.defect("E01")
async def test_concurrent_step_ups_for_other_scopes_each_get_theirs(autojump_clock: MockClock) -> None:
    auth = signer()
    await exchange(auth)
    held = {"token2": {"a"}, "token3": {"a", "b"}, "token4": {"a", "b", "c"}}
    taken: dict[str, str | None] = {}

    async def one(scope: str) -> None:
        header = f'Bearer error="insufficient_scope", scope="{scope}"'
        taken[scope] = await exchange(auth, lambda token: scope in held.get(token, ()), status=403, header=header)

    async with trio.open_nursery() as nursery:
        for scope in "abc":
            nursery.start_soon(one, scope)
            await wait_all_tasks_blocked()
    assert None not in taken.values()
    assert len(auth.grant.needs) == 4  # type: ignore[attr-defined]


async def test_stepping_up_ends_and_is_not_begun_again(autojump_clock: MockClock) -> None:
    """With the sign-in before, three authorizations: then it is a refusal, and stays one for these scopes."""
    auth = signer()
    await exchange(auth)
    challenge = 'Bearer error="insufficient_scope", scope="admin"'
    for _ in range(3):
        assert await exchange(auth, lambda _: False, status=403, header=challenge) is None
    assert len(auth.grant.needs) == 3  # type: ignore[attr-defined]
    other = 'Bearer error="insufficient_scope", scope="write"'
    assert await exchange(auth, lambda token: token == "token4", status=403, header=other) == "token4"
    assert auth.grant.needs[-1].step_up  # type: ignore[attr-defined]


@pytest.mark.parametrize("header", ["", "Bearer", 'Bearer error="invalid_token"', 'Basic error="insufficient_scope"'])
async def test_a_403_that_is_not_about_scopes_starts_no_sign_in(header: str, autojump_clock: MockClock) -> None:
    auth = signer()
    await exchange(auth)
    assert not await auth.on_response(refusing(status=403, header=header))
    assert len(auth.grant.needs) == 1  # type: ignore[attr-defined]


async def test_tokens_of_another_run_are_used_again(autojump_clock: MockClock) -> None:
    first = signer()
    await exchange(first)
    second = signer()
    second.storage = first.storage
    assert await exchange(second) == "token1"
    assert second.grant.needs == []  # type: ignore[attr-defined]


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


async def test_a_sign_in_that_the_user_never_finishes_times_out(autojump_clock: MockClock) -> None:
    async def never(_: str) -> str:
        await trio.sleep_forever()
        raise AssertionError

    def flow() -> Flow[None]:
        yield Visit(url="https://as.example/authorize", state="s")

    sign_in = SignInSettings(visit=never, timeout=300)
    runner = Runner(Fetcher(timeout=10), MemoryStorage(), sign_in)
    with pytest.raises(AuthorizationFailed, match="300 s"):
        await runner.run(flow())


@pytest.mark.defect("E04")
async def test_every_request_in_flight_is_repeated_when_the_nonce_changes() -> None:
    auth = signer(lambda name: name)
    assert await auth.authorize(request()) == {}
    auth._tokens = tokens("bound", dpop_key=new_key())
    flying = [request() for _ in range(5)]
    for about in flying:
        await auth.authorize(about)
    headers = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "second"}
    for about in flying:
        assert await auth.on_response(AuthResponse(request=about, status=401, headers=headers))
    for about in flying:
        proof = (await auth.authorize(about))["DPoP"]
        assert _claims(proof)["nonce"] == "second"
        # A server that asks for the nonce that the proof had already would be asked for ever.
        assert not await auth.on_response(AuthResponse(request=about, status=401, headers=headers))


def _claims(proof: str) -> Any:
    payload = proof.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


@pytest.mark.defect("E08")
async def test_a_short_lived_token_is_used_for_three_quarters_of_its_life(autojump_clock: MockClock) -> None:
    auth = signer(lambda name: name, lifetime=20)
    await exchange(auth)
    for _ in range(14):
        assert await exchange(auth) == "token1"
        await trio.sleep(1)
    assert len(auth.grant.needs) == 1  # type: ignore[attr-defined]
    await trio.sleep(2)
    await exchange(auth)
    await wait_all_tasks_blocked()
    assert await exchange(auth) == "token2"
    assert len(auth.grant.needs) == 2  # type: ignore[attr-defined]


async def test_a_renewal_that_failed_is_not_tried_with_every_request(autojump_clock: MockClock) -> None:
    tried: list[str] = []

    def broken(name: str) -> str:
        tried.append(name)
        raise FetchFailed("the authorization server is down")

    auth = signer(lambda name: name, lifetime=1000)
    await exchange(auth)
    auth.grant = evolve(auth.grant, work=broken)  # type: ignore[type-var]
    await trio.sleep(975)
    for _ in range(5):
        assert await exchange(auth) == "token1"
        await wait_all_tasks_blocked()
    assert len(tried) == 1
    await trio.sleep(11)
    await exchange(auth)
    await wait_all_tasks_blocked()
    assert len(tried) == 2


@pytest.mark.defect("E10")
async def test_a_request_that_starts_during_a_sign_in_waits_where_timeouts_are_paused(
    autojump_clock: MockClock,
) -> None:
    """`authorize` never waits for the user: only `on_response` is called with paused timeouts."""
    auth = signer(lifetime=100)
    await exchange(auth)
    await trio.sleep(200)  # expired
    auth._renew_after = float("inf")  # as after a renewal that failed
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange, auth, lambda token: token == "token2")
        await wait_all_tasks_blocked()
        auth._renew_after = 0.0
        began = trio.current_time()
        late = request()
        assert (await auth.authorize(late))["Authorization"] == "Bearer token1"
        assert trio.current_time() == began
        assert await auth.on_response(refusing(late))
        assert (await auth.authorize(late))["Authorization"] == "Bearer token2"


async def test_a_lock_that_is_never_released_is_an_error_that_says_so(autojump_clock: MockClock) -> None:
    def flow() -> Flow[None]:
        yield Lock(key="k")

    storage = MemoryStorage()
    assert storage.try_lock("k") is not None
    with pytest.raises(FetchFailed, match="another program"):
        await Runner(Fetcher(timeout=10), storage, SignInSettings()).run(flow())
    assert trio.current_time() == 60


async def test_a_lock_ends_with_its_flow() -> None:
    def flow() -> Flow[None]:
        yield Lock(key="k")
        raise AuthorizationFailed("no")

    storage = MemoryStorage()
    for _ in range(2):
        with pytest.raises(AuthorizationFailed, match="no"):
            await Runner(Fetcher(timeout=10), storage, SignInSettings()).run(flow())
