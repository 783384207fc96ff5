"""The authenticator of HTTP servers with `BearerAuth`, `StaticTokens` or `ClientCertificates`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from attrs import define, field

from mcptrio.auth.server import BearerAuth, Principal
from mcptrio.auth.server.checker import CredentialChecker
from mcptrio.auth.server.errors import CredentialsRefused, Unavailable
from mcptrio.auth.server.metadata import metadata, metadata_paths
from mcptrio.auth.server.refusal import Auth, AuthRefusal, forbidden, forbidden_headers
from mcptrio.auth.server.tokens import WantFirstUse, WantIntrospection, WantKeys
from mcptrio.errors import Overloaded
from mcptrio.stores.base import Marks, Store
from mcptrio.transports.bearer.issuers import IssuerClient
from mcptrio.transports.http_server.endpoint.message import JSON, Headers, HttpRequest, Plain, refuse


@define(eq=False, repr=False)
class Authorizer:
    """An `Authenticator` that drives a `CredentialChecker`. Owns: the checker and the client of the issuers."""

    auth: Auth
    now: Callable[[], float] = time.time
    checker: CredentialChecker = field(init=False)
    issuers: IssuerClient | None = field(init=False, default=None)
    _marks: Marks | None = field(init=False, default=None)
    """The marks of a shared store, which hold the used DPoP proofs of all processes."""

    def __attrs_post_init__(self) -> None:
        self.checker = CredentialChecker(self.auth, self.now)
        if isinstance(self.auth, BearerAuth):
            self.issuers = IssuerClient(self.auth)

    def share(self, store: Store) -> None:
        """Serve an endpoint together with the other processes that use a store."""
        self._marks = store.marks
        self.checker.share(store.secret)

    async def close(self) -> None:
        """Close the connections to the issuers."""
        if self.issuers is not None:
            await self.issuers.close()

    async def __call__(self, head: HttpRequest) -> Principal | Plain:
        """Find the principal of a request, or the response that refuses it."""
        check = self.checker.check(head)
        try:
            want = next(check)
            while True:
                try:
                    answer = await (self._use(want) if isinstance(want, WantFirstUse) else self._fetch(want))
                except (CredentialsRefused, Unavailable) as error:
                    want = check.throw(error)
                else:
                    want = check.send(answer)
        except StopIteration as done:
            result: Principal | AuthRefusal = done.value
        if not isinstance(result, AuthRefusal):
            return result
        head.refusal_reason = result.reason
        return _response(result)

    async def _fetch(self, want: WantKeys | WantIntrospection) -> Any:
        assert self.issuers is not None  # only tokens of an issuer need anything fetched
        return await self.issuers.get(want)

    async def _use(self, want: WantFirstUse) -> bool:
        if self._marks is None:
            return True
        try:
            return await self._marks.use("dpop", want.proof, b"", want.until - self.now()) is None
        except Overloaded as error:
            raise Unavailable(f"a proof of possession cannot be checked: {error}") from error

    def forbidden(self, scopes: Iterable[str], request_id: int | str | None = None) -> Plain:
        """Refuse a request whose token is valid but lacks scopes; names all that it needs."""
        return _response(forbidden(self.auth, scopes), request_id)

    def forbidden_headers(self, scopes: Iterable[str]) -> Headers:
        """Build the challenge for a request whose token lacks scopes."""
        return forbidden_headers(self.auth, scopes)

    @property
    def metadata_paths(self) -> frozenset[str]:
        """Where the metadata is served, without authentication."""
        return metadata_paths(self.auth) if isinstance(self.auth, BearerAuth) else frozenset()

    def metadata(self, scopes: Iterable[str], name: str | None) -> Plain:
        """Serve the protected resource metadata (RFC 9728)."""
        assert isinstance(self.auth, BearerAuth)
        body = msgspec.json.encode(metadata(self.auth, scopes, name=name))
        return Plain(200, (*JSON, (b"cache-control", b"max-age=300")), body)


def _response(refusal: AuthRefusal, request_id: int | str | None = None) -> Plain:
    return refuse(
        refusal.status,
        refusal.message,
        code=refusal.code,
        headers=refusal.headers,
        request_id=request_id,
        data=refusal.data,
    )
