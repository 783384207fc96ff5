"""Requests to a token endpoint, common to all grants."""

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
from mcptrio.auth.client.steps import Fetch, Fetched, Flow, FlowInputs, fetch
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
_TEMPORARY = ("temporarily_unavailable", "server_error", "slow_down", "use_dpop_nonce")
"""Error codes that say nothing about the grant: the same request may succeed later."""


@frozen(kw_only=True)
class Need:
    """The reason for a token request, and the state that it starts from."""

    endpoint: str
    challenge: Challenge | None = None
    tokens: Tokens | None = None
    """The current tokens."""
    key: str = "tokens"
    """The key of the stored tokens."""
    refused: bool = False
    """The server refused the current tokens: its authorization server may have changed, so discover it again."""
    step_up: bool = False
    """The current tokens are valid but lack scopes."""
    may_refresh: bool = True
    dpop: bool | None = None
    """Whether to bind tokens to a key; None: if the server asks for it."""
    inputs: FlowInputs
    nonces: proofs.NonceCache = field(factory=proofs.NonceCache)

    @property
    def before(self) -> tuple[str, ...]:
        return self.tokens.requested if self.tokens is not None else ()

    @property
    def challenged(self) -> tuple[str, ...] | None:
        return self.challenge.scopes if self.challenge is not None else None


def bound_key(need: Need, discovered: Discovered) -> Mapping[str, str] | None:
    """Return the key to bind new tokens to; None for bearer tokens.

    Raises:
        AuthorizationFailed: binding is required, but the authorization server does not support it.
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
    """Send a token request and return the response document.

    Raises:
        AuthorizationFailed: the server refused; `error` is its error code.
    """
    sent_nonce = need.nonces.of(server.token_endpoint)
    reply = yield from _post(need, server, credentials, form, what, key)
    document = reply.document()
    if key is not None:
        need.nonces.learn(server.token_endpoint, reply.headers)
        changed = need.nonces.of(server.token_endpoint) != sent_nonce
        if changed and reply.status in (400, 401) and (document or {}).get("error") == "use_dpop_nonce":
            reply = yield from _post(need, server, credentials, form, what, key)  # RFC 9449 section 8
            need.nonces.learn(server.token_endpoint, reply.headers)
            document = reply.document()
    if reply.status == 200 and document is not None and "error" not in document:
        return document
    if reply.status >= 500 or document is None:
        raise FetchFailed(f"{what} returned HTTP {reply.status} without a readable document")
    sent = [form[name] for name in _CONFIDENTIAL if name in form]
    refused = refusal(what, document, (*sent, *credentials.secrets()))
    if reply.status == 429 or refused.error in _TEMPORARY:
        raise FetchFailed(str(refused), error=refused.error)
    raise refused


def _post(
    need: Need,
    server: ServerMetadata,
    credentials: Credentials,
    form: Mapping[str, str],
    what: str,
    key: Mapping[str, str] | None,
) -> Flow[Fetched]:
    # created for each attempt: an assertion and a proof are valid for one request
    headers, fields = authenticate(credentials, offered=server.auth_methods, issuer=server.issuer, inputs=need.inputs)
    url = server.token_endpoint
    if key is not None:
        headers["DPoP"] = proofs.proof(
            key, method="POST", url=url, now=need.inputs.now(), jti=need.inputs.secret(), nonce=need.nonces.of(url)
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
    registration: Credentials | None = None,
) -> Flow[Tokens]:
    """Obtain the tokens of a grant for the discovered server."""
    form = {**form, "resource": discovered.resource}  # RFC 8707: in every request, whatever the grant
    document = yield from request_token(need, discovered.server, credentials, form, key=key)
    return read_tokens(
        document,
        now=need.inputs.now(),
        issuer=discovered.server.issuer,
        resource=discovered.resource,
        client_id=credentials.client_id,
        requested=scopes,
        dpop_key=key,
        previous=previous,
        token_endpoint=discovered.server.token_endpoint,
        auth_methods=discovered.server.auth_methods,
        registration=registration,
    )
