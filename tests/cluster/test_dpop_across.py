"""DPoP proofs across workers: each is used once in the whole cluster, and a nonce of one worker counts at all."""

from __future__ import annotations

from contextlib import AsyncExitStack

from mcptrio.auth.server import Principal
from mcptrio.stores.redis import RedisStore
from mcptrio.transports.bearer.authorizer import Authorizer
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.auth.server.kit import NOW, ec, proof, settings, token
from tests.redis_server import RedisServer, running_server
from tests.transports.app_for_tests import open_endpoint
from tests.transports.bearer.test_authorizer import challenges_of, come

KEY = ec("mine")
TOKEN = token(cnf={"jkt": KEY.thumbprint()})


async def authorizer_of(stack: AsyncExitStack, url: str, **changes: bool) -> Authorizer:
    """The authorizer of a worker that uses a store."""
    authorizer = Authorizer(settings(dpop="required", **changes), now=lambda: NOW)
    await stack.enter_async_context(open_endpoint(store=RedisStore.from_url(url), authenticator=authorizer))
    return authorizer


async def test_a_proof_is_used_once_in_all_workers(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with AsyncExitStack() as stack:
        one, other = [await authorizer_of(stack, url) for _ in range(2)]
        first, second = proof(TOKEN, KEY), proof(TOKEN, KEY, jti="second")
        assert isinstance(await come(one, TOKEN, "DPoP", dpop=first), Principal)
        for authorizer in (other, one):
            replayed = await come(authorizer, TOKEN, "DPoP", dpop=first)
            assert isinstance(replayed, Plain)
            assert 'error="invalid_dpop_proof"' in challenges_of(replayed)[0]
        assert isinstance(await come(other, TOKEN, "DPoP", dpop=second), Principal)


async def test_a_nonce_of_one_worker_counts_at_another(redis_server: RedisServer) -> None:
    url = redis_server.url
    async with AsyncExitStack() as stack:
        one, other = [await authorizer_of(stack, url, dpop_nonce=True) for _ in range(2)]
        refused = await come(one, TOKEN, "DPoP", dpop=proof(TOKEN, KEY))
        assert isinstance(refused, Plain)
        nonce = dict(refused.headers)[b"dpop-nonce"].decode()
        assert isinstance(await come(other, TOKEN, "DPoP", dpop=proof(TOKEN, KEY, nonce=nonce)), Principal)


async def test_a_proof_that_cannot_be_recorded_is_not_accepted() -> None:
    with running_server() as server:
        async with AsyncExitStack() as stack:
            one = await authorizer_of(stack, server.url)
            server.stop()
            refused = await come(one, TOKEN, "DPoP", dpop=proof(TOKEN, KEY))
            assert isinstance(refused, Plain)
            assert refused.status == 503
            assert b"retry-after" in dict(refused.headers)
