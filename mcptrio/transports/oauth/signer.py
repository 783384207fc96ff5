"""Signs the requests of an HTTP client, and signs in when the server asks for it.

Theory of operation. A token is looked up without waiting, so requests never queue behind one another. Getting one is
a single flight: the first request that needs it runs the flow, others that need it too wait for the outcome, and those
that hold a good token pass by. Which token a request was sent with is remembered as long as there is the request; an
answer that refuses a token which has been replaced in the meantime only means to try again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

import trio
from attrs import define, evolve, field

from mcptrio.auth.client import dpop as proofs
from mcptrio.auth.client.challenge import Challenge, choose, read_challenges
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import canonical
from mcptrio.auth.client.steps import Flow, World, load, save
from mcptrio.auth.client.storage import TokenStorage
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens, restore
from mcptrio.auth.ssrf import FetchPolicy, UrlRefused, check_url, is_loopback_url, origin_of
from mcptrio.errors import LocalProtocolError
from mcptrio.transports.oauth.fetching import Fetcher
from mcptrio.transports.oauth.running import Desk, Runner

if TYPE_CHECKING:
    import ssl

    import httpx2

    from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse

T = TypeVar("T")

RENEW_BEFORE: Final = 30.0  # seconds before a token's end
MOST_SIGN_INS: Final = 2  # for one request: what a refresh gave may be refused, what a sign-in gave is final
MOST_STEP_UPS: Final = 2  # for the same scopes: with the sign-in before them, three authorizations
LEAVE_IN_PEACE: Final = 60.0  # seconds after a person's no, however often the client tries again
_MOST_NONCE_RETRIES: Final = 2
_MOST_REMEMBERED: Final = 256


class Plan(Protocol):
    """A way to get tokens."""

    @property
    def own(self) -> Credentials | None: ...
    def obtain(self, need: Need) -> Flow[Tokens]: ...
    def renew(self, need: Need) -> Flow[Tokens | None]: ...


@define(eq=False, repr=False)
class _Flight:
    """A flow that is running, for whoever waits for what comes of it."""

    done: trio.Event = field(factory=trio.Event)
    failure: AuthorizationFailed | None = None


@define(eq=False, repr=False)
class _Sent:
    """What a request was sent with, and what was tried for it so far."""

    tokens: Tokens | None = None
    sign_ins: int = 0
    nonces: int = 0
    scopes: frozenset[str] | None = None


@define(eq=False, repr=False)
class Signer:
    """The authorization of one client at one server: an `HttpAuth`."""

    plan: Plan
    kind: str
    storage: TokenStorage = field(repr=False)
    desk: Desk
    dpop: bool | None = None
    named: tuple[str, ...] = ()
    """URLs that the user named, not a server."""
    trusted_hosts: frozenset[str] = frozenset()
    verify: ssl.SSLContext | bool = True
    client: httpx2.AsyncClient | None = None
    now: Callable[[], float] = time.time
    endpoint: str | None = field(default=None, init=False)
    _tokens: Tokens | None = field(default=None, init=False)
    _flight: _Flight | None = field(default=None, init=False)
    _nonces: proofs.Nonces = field(factory=proofs.Nonces, init=False, repr=False)
    _sent: WeakKeyDictionary[AuthRequest, _Sent] = field(factory=WeakKeyDictionary, init=False, repr=False)
    _step_ups: dict[frozenset[str], int] = field(factory=dict, init=False)
    _looked: bool = field(default=False, init=False)
    _declined: tuple[float, AuthorizationFailed] | None = field(default=None, init=False)

    # -- for the transport

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """The headers for a request: none before the server has asked for any."""
        url = request.url
        if url.startswith("ws"):  # a WebSocket begins as a GET
            url = f"http{url.removeprefix('ws')}"
        if self.endpoint is None:
            self.endpoint = url
        if origin_of(url) != origin_of(self.endpoint):
            raise LocalProtocolError("this authorization belongs to another server: use one object for each server")
        if not self._looked:
            await self._fly(self._tokens, self._restore)
        await self._renew_if_due()
        tokens = self._tokens
        self._sent.setdefault(request, _Sent()).tokens = tokens
        return self._headers(tokens, request.method, url) if tokens is not None else {}

    async def on_response(self, response: AuthResponse) -> bool:
        """Sign in, or step up, if that is what the answer asks for. Says whether to repeat the request.

        Raises:
            AuthorizationFailed: signing in did not work.
        """
        sent = self._sent.get(response.request) or _Sent()
        fresh = self.endpoint is not None and self._nonces.learn(self.endpoint, response.headers)
        if response.status not in (401, 403):
            if sent.scopes is not None and response.status < 400:
                self._step_ups.pop(sent.scopes, None)
            return False
        challenges = read_challenges(response.headers.get("www-authenticate", ""))
        challenge = choose(challenges, dpop=self.dpop)
        return await (self._refused if response.status == 401 else self._insufficient)(challenge, sent, fresh)

    async def _refused(self, challenge: Challenge | None, sent: _Sent, fresh: bool) -> bool:
        if challenge is not None and challenge.error == "use_dpop_nonce" and sent.tokens is not None:
            sent.nonces += 1
            return fresh and sent.nonces <= _MOST_NONCE_RETRIES
        if self._tokens is not sent.tokens and self._tokens is not None:
            return True  # somebody else has a newer one already
        sent.sign_ins += 1
        if sent.sign_ins > MOST_SIGN_INS:
            return False
        need = self._need(challenge, may_refresh=sent.sign_ins == 1)
        await self._fly(sent.tokens, lambda: self._obtain(need))
        return True

    async def _insufficient(self, challenge: Challenge | None, sent: _Sent, fresh: bool) -> bool:
        if challenge is None or challenge.error != "insufficient_scope" or challenge.scopes is None:
            return False
        if sent.tokens is None or (self._tokens is not sent.tokens and self._tokens is not None):
            return sent.tokens is not None
        sent.scopes = frozenset(challenge.scopes)
        tried = self._step_ups.get(sent.scopes, 0)
        if tried >= MOST_STEP_UPS or len(self._step_ups) >= _MOST_REMEMBERED:
            return False
        self._step_ups[sent.scopes] = tried + 1
        need = self._need(challenge, step_up=True)
        await self._fly(sent.tokens, lambda: self._obtain(need))
        return True

    # -- tokens

    async def _renew_if_due(self) -> None:
        tokens = self._tokens
        if tokens is None or tokens.expires_at is None or self.now() < tokens.expires_at - RENEW_BEFORE:
            return
        expired = self.now() >= tokens.expires_at
        if self._flight is not None and not expired:
            return  # somebody is at it, and ours is still good
        try:
            await self._fly(tokens, lambda: self._renew(tokens))
        except AuthorizationFailed:
            if expired:
                raise

    async def _fly(self, stale: Tokens | None, act: Callable[[], Awaitable[None]]) -> None:
        """Run `act`, unless somebody else has just done something about the stale tokens."""
        while (flight := self._flight) is not None:
            await flight.done.wait()
            if flight.failure is not None:
                raise AuthorizationFailed(str(flight.failure), error=flight.failure.error)
            if self._tokens is not stale:
                return
            # else whoever was at it was cancelled: it is our turn
        flight = self._flight = _Flight()
        try:
            await act()
        except AuthorizationFailed as error:
            flight.failure = error
            raise
        finally:
            self._flight = None
            flight.done.set()

    async def _restore(self) -> None:
        if self._looked:
            return
        tokens = restore(await self._run(load(self._key())))
        mine = self.plan.own is None or (tokens is not None and tokens.client_id == self.plan.own.client_id)
        unbound = self.dpop is True and tokens is not None and tokens.dpop_key is None
        self._tokens = tokens if mine and not unbound else None
        self._looked = True

    async def _obtain(self, need: Need) -> None:
        if self._declined is not None and self.now() < self._declined[0] + LEAVE_IN_PEACE:
            raise AuthorizationFailed(str(self._declined[1]), error=self._declined[1].error)
        try:
            tokens = await self._run(self.plan.obtain(need))
        except AuthorizationFailed as error:
            if error.error in ("access_denied", "nobody_came"):
                self._declined = (self.now(), error)  # a client that heals itself would open one page after the other
            raise
        self._declined = None
        await self._keep(tokens)

    async def _renew(self, tokens: Tokens) -> None:
        renewed = await self._run(self.plan.renew(self._need(None)))
        if renewed is not None:
            await self._keep(renewed)
        elif tokens.refresh_token is not None:
            await self._keep(evolve(tokens, refresh_token=None))  # it was refused: not to be shown again

    async def _keep(self, tokens: Tokens) -> None:
        self._tokens = tokens
        await self._run(save(self._key(), tokens.record()))

    def _need(self, challenge: Challenge | None, *, step_up: bool = False, may_refresh: bool = True) -> Need:
        assert self.endpoint is not None
        try:
            check_url(self.endpoint, self._policy())
        except UrlRefused as error:
            raise AuthorizationFailed(f"no token is sent to this server: {error}") from None
        return Need(
            endpoint=self.endpoint,
            challenge=challenge,
            tokens=self._tokens,
            step_up=step_up,
            may_refresh=may_refresh,
            dpop=self.dpop,
            world=World(now=self.now, secret=lambda: secrets.token_urlsafe(48)),
            nonces=self._nonces,
        )

    def _headers(self, tokens: Tokens, method: str, url: str) -> dict[str, str]:
        if tokens.dpop_key is None:
            return {"Authorization": f"Bearer {tokens.access_token}"}
        proof = proofs.proof(
            tokens.dpop_key,
            method=method,
            url=url,
            now=self.now(),
            jti=secrets.token_urlsafe(24),
            token=tokens.access_token,
            nonce=self._nonces.of(url),
        )
        return {"Authorization": f"DPoP {tokens.access_token}", "DPoP": proof}

    # -- flows

    async def _run(self, flow: Flow[T]) -> T:
        fetcher = Fetcher(policy=self._policy(), verify=self.verify, lent=self.client)
        return await Runner(fetcher=fetcher, storage=self.storage, desk=self.desk).run(flow)

    def _policy(self) -> FetchPolicy:
        assert self.endpoint is not None
        return FetchPolicy(
            loopback=is_loopback_url(self.endpoint),
            origins=frozenset(origin_of(url) for url in (self.endpoint, *self.named)),
            hosts=self.trusted_hosts,
        )

    def _key(self) -> str:
        assert self.endpoint is not None
        return f"{self.kind} at {canonical(self.endpoint)}"
