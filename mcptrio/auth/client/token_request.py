"""One request to a token endpoint, whatever the grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from mcptrio.auth.client import dpop as proofs
from mcptrio.auth.client.challenge import Challenge
from mcptrio.auth.client.credentials import Credentials, authenticate
from mcptrio.auth.client.discovery import Discovered
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed, refusal
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.steps import Fetch, Fetched, Flow, World, fetch
from mcptrio.auth.client.tokens import Tokens, read_tokens

_CONFIDENTIAL = (
    "code",
    "code_verifier",
    "refresh_token",
    "assertion",
    "subject_token",
    "client_secret",
    "client_assertion",
)


@frozen(kw_only=True)
class Need:
    """Why a token is wanted, and what is at hand."""

    endpoint: str
    challenge: Challenge | None = None
    tokens: Tokens | None = None
    """Those in use until now."""
    step_up: bool = False
    """They are good, but not for enough."""
    may_refresh: bool = True
    dpop: bool | None = None
    """Whether tokens shall be bound to a key; None: if the server wants it."""
    world: World
    nonces: proofs.Nonces = field(factory=proofs.Nonces)

    @property
    def before(self) -> tuple[str, ...]:
        return self.tokens.requested if self.tokens is not None else ()

    @property
    def challenged(self) -> tuple[str, ...] | None:
        return self.challenge.scopes if self.challenge is not None else None


def bound_key(need: Need, discovered: Discovered) -> Mapping[str, str] | None:
    """The key that new tokens shall be bound to, if they shall.

    Raises:
        AuthorizationFailed: they shall, and the authorization server cannot.
    """
    required = discovered.metadata is not None and discovered.metadata.dpop_required
    asked = need.challenge is not None and need.challenge.scheme == "dpop"
    wanted = need.dpop if need.dpop is not None else required or asked or bool(need.tokens and need.tokens.dpop_key)
    if not wanted:
        return None
    offered = discovered.server.dpop_algorithms
    if offered is not None and proofs.ALGORITHM not in offered:
        raise AuthorizationFailed(f"the authorization server takes no DPoP proofs signed with {proofs.ALGORITHM}")
    kept = need.tokens.dpop_key if need.tokens is not None else None
    return kept or proofs.new_key()


def request_token(
    need: Need,
    server: ServerMetadata,
    credentials: Credentials,
    form: Mapping[str, str],
    *,
    what: str = "the token request",
    key: Mapping[str, str] | None = None,
) -> Flow[dict[str, Any]]:
    """What the token endpoint gives for a grant.

    Raises:
        AuthorizationFailed: it refused; `error` says with which code.
    """
    reply = yield from _post(need, server, credentials, form, what, key)
    document = reply.document()
    if key is not None:
        fresh = need.nonces.learn(server.token_endpoint, reply.headers)
        if fresh and reply.status in (400, 401) and (document or {}).get("error") == "use_dpop_nonce":
            reply = yield from _post(need, server, credentials, form, what, key)  # RFC 9449 section 8
            need.nonces.learn(server.token_endpoint, reply.headers)
            document = reply.document()
    if reply.status == 200 and document is not None and "error" not in document:
        return document
    if reply.status >= 500 or document is None:
        raise FetchFailed(f"{what} was answered with HTTP {reply.status} and nothing that can be read")
    sent = [form[name] for name in _CONFIDENTIAL if name in form]
    raise refusal(what, document, (*sent, *credentials.secrets()))


def _post(
    need: Need,
    server: ServerMetadata,
    credentials: Credentials,
    form: Mapping[str, str],
    what: str,
    key: Mapping[str, str] | None,
) -> Flow[Fetched]:
    # made anew for each attempt: an assertion and a proof are good for one request
    headers, fields = authenticate(credentials, offered=server.auth_methods, issuer=server.issuer, world=need.world)
    url = server.token_endpoint
    if key is not None:
        headers["DPoP"] = proofs.proof(
            key, method="POST", url=url, now=need.world.now(), jti=need.world.secret(), nonce=need.nonces.of(url)
        )
    reply = yield from fetch(Fetch(what=what, method="POST", url=url, headers=headers, form={**form, **fields}))
    return reply


def obtain_tokens(
    need: Need,
    discovered: Discovered,
    credentials: Credentials,
    form: Mapping[str, str],
    *,
    scopes: tuple[str, ...],
    key: Mapping[str, str] | None,
    previous: Tokens | None = None,
) -> Flow[Tokens]:
    """The tokens for a grant, for the server that was discovered."""
    form = {**form, "resource": discovered.resource}  # RFC 8707: in every request, whatever the grant
    document = yield from request_token(need, discovered.server, credentials, form, key=key)
    return read_tokens(
        document,
        now=need.world.now(),
        issuer=discovered.server.issuer,
        resource=discovered.resource,
        client_id=credentials.client_id,
        requested=scopes,
        dpop_key=key,
        previous=previous,
    )
