"""Valid and invalid tokens, for servers that authenticate their callers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.auth.server import kit
from tests.auth.server.test_tokens import with_public_key_as_secret

from .actions import Scene, action
from .program import token_of
from .session_actions import ask
from .wire import Connection, Reply


def good(**changes: Any) -> str:
    now = time.time()
    return kit.sign(kit.claims(**{"iat": now - 10, "exp": now + 300, **changes}))


def signed_as(key: Any = None, **header: Any) -> str:
    now = time.time()
    return kit.sign(kit.claims(iat=now - 10, exp=now + 300), key, **header)


BAD: dict[str, Callable[[], str]] = {
    "expired": lambda: good(exp=time.time() - 120),
    "not yet valid": lambda: good(nbf=time.time() + 600),
    "made in the future": lambda: good(iat=time.time() + 600),
    "without an end": lambda: good(exp=None),
    "of another issuer": lambda: good(iss="https://evil.example"),
    "with a slash behind its issuer": lambda: good(iss=kit.ISSUER + "/"),
    "for another server": lambda: good(aud="https://other.example.org/mcp"),
    "without an audience": lambda: good(aud=None),
    "for ten thousand servers": lambda: good(aud=["https://other.example.org/mcp"] * 10_000),
    "signed by a stranger": lambda: signed_as(kit.rsa("stranger"), kid="one"),
    "with an unknown key": lambda: signed_as(kit.rsa("stranger")),
    "with a bad signature": lambda: good()[:-8] + "AAAAAAAA",
    "without a signature": lambda: good().rpartition(".")[0] + ".",
    "alg none": lambda: kit.b64(b'{"alg":"none"}') + "." + kit.b64(json.dumps(kit.claims()).encode()) + ".",
    "HS256 with the public key": with_public_key_as_secret,
    "jku": lambda: signed_as(kit.rsa("stranger"), jku="http://127.0.0.1:9/keys"),
    "crit": lambda: signed_as(crit=["exp"]),
    "for two hundred servers": lambda: good(aud=["https://o.example"] * 200),
    "9 KiB": lambda: good(filler="x" * 9000),
    "64 KiB": lambda: good(filler="x" * 49152),
    "garbage": lambda: "a.b.c",
    "one part": lambda: "abcdefghijklmnop",
}


def settings() -> dict[str, Any]:
    return {"bearer": {"resource": kit.RESOURCE, "issuers": [kit.ISSUER], "jwks": kit.jwks()}, "heartbeat": 60}


@action
def with_token(scene: Scene) -> Reply:
    """Ask with a bad token, in the session of a client that has a valid one."""
    reply = ask(scene.speaker, "POST", authorization=f"Bearer {BAD[scene.case.data['token']]()}")
    challenge = reply.headers.get("www-authenticate", "")
    assert challenge.startswith("Bearer "), challenge
    assert 'error="invalid_token"' in challenge, challenge
    assert scene.speaker.call("echo", text="x").status == 200
    return reply


@action
def huge_token(scene: Scene) -> Reply:
    """Return a token that is refused before its signature is checked."""
    reply = ask(scene.speaker, "POST", authorization=f"Bearer {BAD[scene.case.data['token']]()}")
    assert "www-authenticate" not in reply.headers
    assert scene.speaker.call("echo", text="x").status == 200
    return reply


@action
def without_token(scene: Scene) -> Reply:
    """RFC 9728 section 5.1 says where the metadata is. There is no error: nothing was wrong with what is not there."""
    reply = ask(scene.speaker, scene.case.data.get("http_method", "POST"), authorization=None)
    challenge = reply.headers.get("www-authenticate", "")
    assert challenge.startswith("Bearer "), challenge
    assert 'resource_metadata="' in challenge, challenge
    assert "error=" not in challenge
    return reply


@action
def too_small_scope(scene: Scene) -> Reply:
    """All scopes that are needed are named at once."""
    body = scene.speaker.message("tools/call", {"name": "scoped", "arguments": {}})
    reply = scene.send(scene.speaker.head("POST", body) + body)
    challenge = reply.headers.get("www-authenticate", "")
    assert 'error="insufficient_scope"' in challenge, challenge
    assert "orders:write" in challenge, challenge
    return reply


@action
def odd_credentials(scene: Scene) -> Reply:
    lines = [line.replace("$TOKEN", token_of("ann")) for line in scene.case.data["lines"]]
    body = scene.speaker.message("tools/list")
    head = scene.speaker.head(
        "POST",
        body,
        path=scene.case.data.get("path", "/mcp").replace("$TOKEN", token_of("ann")),
        headers={"authorization": None},
        lines=tuple(line.encode() for line in lines),
    )
    with Connection(scene.speaker.port) as connection:
        connection.send(head + body)
        return connection.read()
