"""A protected MCP server and its authorization server, in one small app: strict, and counting what it is asked."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import trio
from joserfc import jwt
from joserfc.jwk import ECKey

from .raw_peer import answer, read_body

JSON = (b"content-type", b"application/json")


@dataclass
class Mock:
    """The issuer is `<base>/as`, the servers `<base>/mcp` and `<base>/mcp2`.

    Tokens are numbered; `valid` says which are good now.
    """

    dpop: bool = False
    nonces: bool = False
    expires_in: int = 3600
    token_delay: float = 0.0
    """Seconds that the token endpoint takes."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """For each token, the names with which `together` was called."""
    needed: dict[str, str] = field(default_factory=dict)
    """The scope that a tool needs."""
    gather: int = 1
    """A call of the tool `together` returns when so many are inside."""
    iss: str | None = None
    """Another issuer to claim in the redirect."""
    base: str = ""
    valid: dict[str, set[str]] = field(default_factory=dict)
    refresh: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    """Refresh tokens that were replaced. One that is presented again revokes everything, as RFC 9700 recommends."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    inside: int = 0
    full: trio.Event = field(default_factory=trio.Event)
    numbers: int = 0

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def count(self, what: str) -> int:
        return sum(name == what for name, _ in self.asked)

    def expire(self) -> None:
        self.valid.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path, headers = scope["path"], {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["type"] == "websocket":
            await self._socket(headers, receive, send)
            return
        body = await read_body(receive)
        query = dict(parse_qsl(scope["query_string"].decode()))
        issuer = f"{self.base}/as"
        name = path.rpartition("/")[2]
        if path in ("/mcp", "/mcp2"):
            await self._mcp(scope["method"], headers, body, send)
        elif path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp2"):
            await self._json(send, {"resource": f"{self.base}/{name}", "authorization_servers": [issuer]})
        elif path == "/.well-known/oauth-authorization-server/as":
            self.asked.append(("metadata", {}))
            await self._json(send, self._metadata(issuer))
        elif path == "/as/register":
            self.asked.append(("register", {}))
            await self._json(send, {"client_id": f"client{self.count('register')}", **json.loads(body)}, 201)
        elif path == "/as/authorize":
            await self._authorize(query, issuer, send)
        elif path == "/as/token":
            await self._token(dict(parse_qsl(body.decode())), headers, send)
        else:
            await answer(send, 404, b"")

    def _metadata(self, issuer: str) -> dict[str, Any]:
        return {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            **({"dpop_signing_alg_values_supported": ["ES256"]} if self.dpop else {}),
        }

    async def _authorize(self, query: dict[str, str], issuer: str, send: Any) -> None:
        self.asked.append(("authorize", query))
        code = f"code{self.count('authorize')}"
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.iss or issuer}
        location = f"{query['redirect_uri']}?{urlencode(back)}"
        await answer(send, 302, b"", (b"location", location.encode()))

    async def _token(self, form: dict[str, str], headers: dict[str, str], send: Any) -> None:
        self.asked.append((form["grant_type"], form))
        if self.dpop and (problem := self._check_proof(headers, "POST", f"{self.base}/as/token", None)):
            await self._json(send, {"error": problem}, 400, (b"dpop-nonce", b"nonce-of-as"))
            return
        scopes = set(form.get("scope", "").split())
        if form["grant_type"] == "authorization_code":
            query = self.codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            good = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"]
            good = (
                good
                and form["redirect_uri"] == query["redirect_uri"]
                and form["resource"] in (self.url, f"{self.url}2")
            )
            scopes = set(query.get("scope", "").split())
        else:
            presented = form.get("refresh_token", "")
            good = presented in self.refresh
            self.refresh.discard(presented)
            if presented in self.used:
                self.asked.append(("reuse", form))
                self.valid.clear()
                self.refresh.clear()
            self.used.add(presented)
            await trio.sleep(self.token_delay)
        if not good:
            await self._json(send, {"error": "invalid_grant"}, 400)
            return
        self.numbers += 1
        token, refresh = f"token{self.numbers}", f"refresh{self.numbers}"
        self.valid[token] = scopes
        self.refresh.add(refresh)
        kind = "DPoP" if self.dpop else "Bearer"
        lifetime = {"expires_in": self.expires_in}
        await self._json(send, {"access_token": token, "token_type": kind, "refresh_token": refresh, **lifetime})

    def _refuse(self, method: str, headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
        """The headers of a 401; none if the request is authorized."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        problem = "invalid_token" if scheme != ("DPoP" if self.dpop else "Bearer") or token not in self.valid else ""
        if self.dpop and not problem:
            problem = self._check_proof(headers, method, self.url, token)
        if not problem:
            return []
        self.asked.append(("refused", {"error": problem}))
        challenge = f'{"DPoP" if self.dpop else "Bearer"} error="{problem}"'
        extra = [(b"dpop-nonce", b"nonce-of-rs")] if self.nonces else []
        return [(b"www-authenticate", challenge.encode()), *extra]

    async def _socket(self, headers: dict[str, str], receive: Any, send: Any) -> None:
        await receive()  # websocket.connect
        if refusal := self._refuse("GET", headers):
            fields = [*refusal, (b"content-length", b"0")]
            await send({"type": "websocket.http.response.start", "status": 401, "headers": fields})
            await send({"type": "websocket.http.response.body", "body": b"", "more_body": False})
            return
        await send({"type": "websocket.accept", "subprotocol": "mcp", "headers": []})
        while (event := await receive())["type"] == "websocket.receive":
            request = json.loads(event["text"])
            if "id" in request:
                params = request.get("params", {})
                result = await self._result(request["method"], params, params.get("name", ""))
                text = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
                await send({"type": "websocket.send", "text": text})

    async def _mcp(self, method: str, headers: dict[str, str], body: bytes, send: Any) -> None:
        if refusal := self._refuse(method, headers):
            await answer(send, 401, b"", *refusal)
            return
        token = headers["authorization"].partition(" ")[2]
        if method != "POST":
            await answer(send, 405, b"")
            return
        request = json.loads(body)
        name = request.get("params", {}).get("name", "")
        if (needed := self.needed.get(name)) and needed not in self.valid[token]:
            challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
            await answer(send, 403, b"", (b"www-authenticate", challenge.encode()))
            return
        if "id" not in request:
            await answer(send, 202, b"")
            return
        if caller := request.get("params", {}).get("arguments", {}).get("name"):
            self.users.setdefault(token, set()).add(caller)
        result = await self._result(request["method"], request.get("params", {}), name)
        await self._json(send, {"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def _result(self, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        if method == "initialize":
            info = {"name": "mock", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [{"name": one, "inputSchema": {"type": "object"}} for one in ("together", *self.needed)]}
        if name == "together":
            self.inside += 1
            if self.inside >= self.gather:
                self.full.set()
            await self.full.wait()
        return {"content": [{"type": "text", "text": "done"}]}

    def _check_proof(self, headers: dict[str, str], method: str, url: str, token: str | None) -> str:
        """Return the fault of a request's proof, in the words of RFC 9449."""
        proof = headers.get("dpop", "")
        try:
            head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
            claims = jwt.decode(proof, ECKey.import_key(head["jwk"]), algorithms=["ES256"]).claims
        except Exception:
            return "invalid_dpop_proof"
        expected = {"htm": method, "htu": url}
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            expected["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if head.get("typ") != "dpop+jwt" or "d" in head["jwk"] or claims["jti"] in self.proofs:
            return "invalid_dpop_proof"
        if any(claims.get(name) != value for name, value in expected.items()):
            return "invalid_dpop_proof"
        self.proofs.append(claims["jti"])
        nonce = "nonce-of-as" if token is None else "nonce-of-rs"
        return "use_dpop_nonce" if self.nonces and claims.get("nonce") != nonce else ""

    async def _json(self, send: Any, document: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        await answer(send, status, json.dumps(document).encode(), JSON, *headers)
