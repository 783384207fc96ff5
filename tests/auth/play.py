"""Run a flow against scripted responses: pages by URL, a user, a storage; no network and no clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.steps import Fetch, Fetched, Flow, FlowInputs, Listen, Load, Lock, Save, Supply, Unlock, Visit

T = TypeVar("T")
Page = Fetched | Exception | Callable[[Fetch], Fetched]

ENDPOINT = "https://mcp.example/mcp"
PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
PRM_ROOT = "https://mcp.example/.well-known/oauth-protected-resource"
ISSUER = "https://as.example"
META = "https://as.example/.well-known/oauth-authorization-server"
REDIRECT = "http://127.0.0.1:5000/callback"
NOW = 1_800_000_000.0


def page(document: Any, status: int = 200, **headers: str) -> Fetched:
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Fetched(status=status, headers=named, body=json.dumps(document).encode())


def missing(status: int = 404) -> Fetched:
    return Fetched(status=status, headers={"content-type": "text/html"}, body=b"<p>nothing here")


def resource_page(**more: Any) -> Fetched:
    return page({"resource": ENDPOINT, "authorization_servers": [ISSUER], **more})


def server_document(issuer: str = ISSUER, **more: Any) -> dict[str, Any]:
    document = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        **more,
    }
    return {name: value for name, value in document.items() if value is not None}


def tokens_page(token: str = "secret-access", **more: Any) -> Fetched:
    return page({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more})


def web(**pages: Page) -> dict[str, Page]:
    """Return the pages of a working server and its authorization server, with some replaced."""
    usual: dict[str, Page] = {
        "prm": resource_page(),
        "meta": page(server_document()),
        "register": page({"client_id": "registered"}, 201),
        "token": tokens_page(),
    }
    places = {"prm": PRM, "meta": META, "register": f"{ISSUER}/register", "token": f"{ISSUER}/token"}
    return {places[name]: value for name, value in {**usual, **pages}.items()}


def inputs() -> FlowInputs:
    numbers = iter(range(1000))
    return FlowInputs(now=lambda: NOW, secret=lambda: f"secret-{next(numbers):036}")


def agree(query: dict[str, str]) -> dict[str, str]:
    """Answer as a user who agrees."""
    return {"code": "secret-code", "state": query["state"]}


@dataclass
class Play:
    """A flow under test: the pages it can fetch, and the requests and visits that it made."""

    pages: Mapping[str, Page]
    person: Callable[[dict[str, str]], dict[str, str]] = agree
    storage: dict[str, Any] = field(default_factory=dict)
    redirect_uri: str | None = None
    fetches: list[Fetch] = field(default_factory=list)
    visits: list[dict[str, str]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    """The records that another program has locked."""
    locked: set[str] = field(default_factory=set)
    """The records that are locked now; the driver releases them when the flow ends."""

    def run(self, flow: Flow[T]) -> T:
        answer: Any = None
        error: AuthorizationFailed | None = None
        while True:
            try:
                step = flow.throw(error) if error is not None else flow.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer, error = None, None
            try:
                answer = self._perform(step)
            except AuthorizationFailed as failed:
                error = failed

    def _perform(self, step: Any) -> Any:
        match step:
            case Fetch():
                self.fetches.append(step)
                reply = self.pages.get(step.url, missing())
                if isinstance(reply, Exception):
                    raise reply
                return reply(step) if callable(reply) else reply
            case Load():
                return self.storage.get(step.key)
            case Save():
                assert step.key in self.locked | self.busy or step.key.startswith("issuer of ")
                self.storage[step.key] = step.record
                return None
            case Lock():
                if step.key in self.busy:
                    raise FetchFailed("another program")
                assert step.key not in self.locked
                self.locked.add(step.key)
                return None
            case Unlock():
                self.locked.discard(step.key)
                return None
            case Listen():
                return self.redirect_uri or step.preferred or REDIRECT
            case Visit():
                query = dict(parse_qsl(urlsplit(step.url).query))
                self.visits.append({**query, "page": step.url.partition("?")[0]})
                return self.person(query)
            case Supply():
                return step.supplier(*step.arguments)
        raise AssertionError(step)

    @property
    def urls(self) -> list[str]:
        return [one.url for one in self.fetches]

    def forms(self, url: str = f"{ISSUER}/token") -> list[dict[str, str]]:
        return [dict(one.form or {}) for one in self.fetches if one.url == url]


def unreachable() -> FetchFailed:
    return FetchFailed("connection refused")
