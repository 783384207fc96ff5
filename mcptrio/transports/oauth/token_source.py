"""Access tokens for the requests of an HTTP client: obtained when the server asks for them, renewed before they expire.

A current token is used without waiting, so requests never queue behind one another. At most one flow obtains tokens at
a time, in a task of its own: requests that need its result wait for it, and a request that is cancelled ends its wait,
not the sign-in that the user has begun. Each request is associated with the token that it was sent with, as long as the
request object lives: when a response refuses a token that has been replaced since, the request is only repeated.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

import trio
from attrs import define, field

from mcptrio.auth.client import dpop as proofs
from mcptrio.auth.client.acquire import Grant, acquire, adopt, renew, stored_tokens
from mcptrio.auth.client.challenge import Challenge, choose, read_challenges
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import canonical
from mcptrio.auth.client.steps import Flow, FlowInputs
from mcptrio.auth.client.storage import TokenStorage
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens
from mcptrio.auth.ssrf import FetchPolicy, UrlRefused, check_url, is_loopback_url, origin_of
from mcptrio.errors import LocalProtocolError
from mcptrio.telemetry.log import escape
from mcptrio.transports.fetch import Fetcher
from mcptrio.transports.oauth.runner import Runner, SignInSettings

if TYPE_CHECKING:
    import ssl

    import httpx2

    from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse

T = TypeVar("T")
logger = logging.getLogger("mcptrio.auth")

FETCH_TIMEOUT: Final = 10.0
MAX_REDIRECTS: Final = 4
RENEWAL_PAUSE: Final = 10.0  # seconds after a failed renewal without another attempt
MAX_SIGN_INS: Final = 2  # for one request: a refreshed token may be refused, the token of a sign-in is final
MAX_STEP_UPS: Final = 2  # for the same scopes: with the initial sign-in, three authorizations
DECLINED_PAUSE: Final = 60.0  # seconds without a new sign-in page after the user declined or did not respond
_MAX_NONCE_RETRIES: Final = 2
_MAX_STEP_UP_SCOPES: Final = 256


@define(eq=False, repr=False)
class _Flight:
    """The flow that obtains tokens now."""

    may_ask: bool
    """It may wait for the user."""
    done: trio.Event = field(factory=trio.Event)
    failure: BaseException | None = None

    async def wait(self) -> None:
        """Wait until it has ended.

        Raises:
            AuthorizationFailed: it failed. Each waiting request gets an exception of its own.
        """
        await self.done.wait()
        if isinstance(self.failure, AuthorizationFailed):
            raise AuthorizationFailed(str(self.failure), error=self.failure.error) from self.failure
        if self.failure is not None:
            raise AuthorizationFailed(f"the sign-in failed: {self.failure!r:.200}") from self.failure


@define(eq=False, repr=False)
class _Sent:
    """The token and nonce that a request was sent with, and the attempts made for it so far."""

    tokens: Tokens | None = None
    nonce: str | None = None
    sign_ins: int = 0
    nonces: int = 0
    scopes: frozenset[str] | None = None


@define(eq=False, repr=False)
class TokenSource:
    """The tokens of one client at one server: an `HttpAuth`.

    Owns: the current tokens, and the task of the running flow, which ends by itself: each of its steps has a timeout.
    """

    grant: Grant
    kind: str
    storage: TokenStorage = field(repr=False)
    sign_in: SignInSettings
    dpop: bool | None = None
    named: tuple[str, ...] = ()
    """URLs that the user configured, as opposed to URLs from a server."""
    trusted_hosts: frozenset[str] = frozenset()
    verify: ssl.SSLContext | bool = True
    client: httpx2.AsyncClient | None = None
    now: Callable[[], float] = time.time
    endpoint: str | None = field(default=None, init=False)
    _tokens: Tokens | None = field(default=None, init=False)
    _flight: _Flight | None = field(default=None, init=False)
    _nonces: proofs.NonceCache = field(factory=proofs.NonceCache, init=False, repr=False)
    _sent: WeakKeyDictionary[AuthRequest, _Sent] = field(factory=WeakKeyDictionary, init=False, repr=False)
    _step_ups: dict[frozenset[str], int] = field(factory=dict, init=False)
    _restored: bool = field(default=False, init=False)
    _restoring: trio.Lock = field(factory=trio.Lock, init=False)
    _renew_after: float = field(default=0.0, init=False)
    _declined: tuple[float, AuthorizationFailed] | None = field(default=None, init=False)

    # -- for the transport

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """Return the headers to add to a request; none before the server has asked for a token."""
        url = request.url
        if url.startswith("ws"):  # the handshake of a WebSocket is a GET
            url = f"http{url.removeprefix('ws')}"
        if self.endpoint is None:
            self.endpoint = url
        if origin_of(url) != origin_of(self.endpoint):
            raise LocalProtocolError("this authorization belongs to another server: use one object for each server")
        await self._restore()
        await self._renew_if_due()
        sent = self._sent.setdefault(request, _Sent())
        sent.tokens, sent.nonce = self._tokens, self._nonces.of(url)
        return {} if sent.tokens is None else self._headers(sent.tokens, request.method, url, sent.nonce)

    async def on_response(self, response: AuthResponse) -> bool:
        """Sign in or step up if the response asks for it; return whether to repeat the request.

        Raises:
            AuthorizationFailed: the sign-in failed.
        """
        sent = self._sent.get(response.request) or _Sent()
        if self.endpoint is not None:
            self._nonces.learn(self.endpoint, response.headers)
        if response.status not in (401, 403):
            if sent.scopes is not None and response.status < 400:
                self._step_ups.pop(sent.scopes, None)
            return False
        challenges = read_challenges(response.headers.get("www-authenticate", ""))
        challenge = choose(challenges, dpop=self.dpop)
        return await (self._refused if response.status == 401 else self._insufficient)(challenge, sent)

    async def _refused(self, challenge: Challenge | None, sent: _Sent) -> bool:
        if challenge is not None and challenge.error == "use_dpop_nonce" and sent.tokens is not None:
            assert self.endpoint is not None
            sent.nonces += 1
            # Many requests may be in flight when the nonce changes: each is repeated, not only the first.
            return self._nonces.of(self.endpoint) != sent.nonce and sent.nonces <= _MAX_NONCE_RETRIES
        await self._join()
        if self._is_replaced(sent):
            return True
        if sent.sign_ins >= MAX_SIGN_INS:
            return False
        need = self._need(challenge, refused=True, may_refresh=sent.sign_ins == 0)

        async def sign_in() -> None:
            if not await self._adopt(need):
                sent.sign_ins += 1
                await self._obtain(need)

        await self._start(sign_in).wait()
        return True

    async def _insufficient(self, challenge: Challenge | None, sent: _Sent) -> bool:
        if challenge is None or challenge.error != "insufficient_scope" or challenge.scopes is None:
            return False
        if sent.tokens is None:
            return False
        sent.scopes = frozenset(challenge.scopes)
        await self._join()
        if self._is_replaced(sent):
            return True
        scopes, tried = sent.scopes, self._step_ups.get(sent.scopes, 0)
        if tried >= MAX_STEP_UPS or (not tried and len(self._step_ups) >= _MAX_STEP_UP_SCOPES):
            return False
        need = self._need(challenge, step_up=True)

        async def step_up() -> None:
            if not await self._adopt(need):
                # Sign-ins are counted, not requests: any number of requests may wait for the same one.
                self._step_ups[scopes] = tried + 1
                await self._obtain(need)

        await self._start(step_up).wait()
        return True

    def _is_replaced(self, sent: _Sent) -> bool:
        """Return whether there is a newer token than the one that the request was sent with."""
        return self._tokens is not None and not self._tokens.same_as(sent.tokens)

    # -- flows

    async def _join(self) -> None:
        """Wait until no flow is running.

        Raises:
            AuthorizationFailed: the flow failed.
        """
        while self._flight is not None:
            await self._flight.wait()

    def _start(self, act: Callable[[], Awaitable[None]], *, may_ask: bool = True) -> _Flight:
        """Run a flow in a task of its own. No other may be running, see `_join`."""
        flight = self._flight = _Flight(may_ask)
        # A system task, because the sign-in must survive the request that began it, and may serve several connections.
        trio.lowlevel.spawn_system_task(self._run_flight, flight, act, name="mcptrio sign-in", context=copy_context())
        return flight

    async def _run_flight(self, flight: _Flight, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except trio.Cancelled:  # the whole Trio program ends
            flight.failure = AuthorizationFailed("the sign-in was interrupted by the end of the program")
            raise
        except BaseException as error:  # noqa: BLE001 - raised in the requests that wait; a system task must not raise
            flight.failure = error
        finally:
            self._flight = None
            flight.done.set()

    async def _restore(self) -> None:
        """Load the stored tokens, once."""
        if self._restored:
            return
        async with self._restoring:
            if not self._restored:
                self._tokens = await self._run(stored_tokens(self.grant, self._key(), self.dpop))
                self._restored = True

    async def _renew_if_due(self) -> None:
        """Renew the tokens if it is time. A token that cannot be renewed is used until the server refuses it."""
        tokens, now = self._tokens, self.now()
        if tokens is None or not tokens.is_due(now) or now < self._renew_after:
            return
        flight = self._flight or self._start(self._renew, may_ask=False)
        # While the user signs in, requests are sent with the old token. The server refuses it, and they wait for the
        # sign-in then, with their timeouts paused.
        if tokens.is_expired(now) and not flight.may_ask:
            await flight.wait()

    async def _renew(self) -> None:
        need = self._need(None)
        try:
            renewed = await self._run(renew(self.grant, need))
        except AuthorizationFailed as error:
            logger.warning("the access token for %s could not be renewed: %s", self.endpoint, escape(error, 1000))
            renewed = None
        if renewed is not None:
            self._take(renewed)
        else:
            self._renew_after = self.now() + RENEWAL_PAUSE

    async def _adopt(self, need: Need) -> bool:
        """Use the tokens that another client of the storage has obtained; return whether there are any."""
        other = await self._run(adopt(self.grant, need))
        if other is not None:
            self._take(other)
        return other is not None

    def _take(self, tokens: Tokens) -> None:
        self._tokens, self._renew_after = tokens, 0.0

    async def _obtain(self, need: Need) -> None:
        if self._declined is not None and self.now() < self._declined[0] + DECLINED_PAUSE:
            raise AuthorizationFailed(str(self._declined[1]), error=self._declined[1].error)
        try:
            self._take(await self._run(acquire(self.grant, need)))
        except AuthorizationFailed as error:
            if error.error in ("access_denied", "sign_in_timeout"):
                self._declined = (self.now(), error)  # a client that reconnects would open one page after the other
            raise
        self._declined = None

    def _need(
        self,
        challenge: Challenge | None,
        *,
        refused: bool = False,
        step_up: bool = False,
        may_refresh: bool = True,
    ) -> Need:
        assert self.endpoint is not None
        try:
            check_url(self.endpoint, self._policy())
        except UrlRefused as error:
            raise AuthorizationFailed(f"tokens cannot be sent to this server: {error}") from None
        return Need(
            endpoint=self.endpoint,
            challenge=challenge,
            tokens=self._tokens,
            key=self._key(),
            refused=refused,
            step_up=step_up,
            may_refresh=may_refresh,
            dpop=self.dpop,
            inputs=FlowInputs(now=self.now, secret=lambda: secrets.token_urlsafe(48)),
            nonces=self._nonces,
        )

    def _headers(self, tokens: Tokens, method: str, url: str, nonce: str | None) -> dict[str, str]:
        if tokens.dpop_key is None:
            return {"Authorization": f"Bearer {tokens.access_token}"}
        proof = proofs.proof(
            tokens.dpop_key,
            method=method,
            url=url,
            now=self.now(),
            jti=secrets.token_urlsafe(24),
            token=tokens.access_token,
            nonce=nonce,
        )
        return {"Authorization": f"DPoP {tokens.access_token}", "DPoP": proof}

    async def _run(self, flow: Flow[T]) -> T:
        fetcher = Fetcher(
            timeout=FETCH_TIMEOUT,
            policy=self._policy(),
            max_redirects=MAX_REDIRECTS,
            verify=self.verify,
            lent=self.client,
        )
        return await Runner(fetcher=fetcher, storage=self.storage, sign_in=self.sign_in).run(flow)

    def _key(self) -> str:
        assert self.endpoint is not None
        return f"{self.kind} at {canonical(self.endpoint)}"

    def _policy(self) -> FetchPolicy:
        assert self.endpoint is not None
        return FetchPolicy(
            loopback=is_loopback_url(self.endpoint),
            origins=frozenset(origin_of(url) for url in (self.endpoint, *self.named)),
            hosts=self.trusted_hosts,
        )
