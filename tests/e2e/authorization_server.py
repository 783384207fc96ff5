"""A real authorization server for tests: Authlib's, on Flask, as a program of its own.

    python -m tests.e2e.authorization_server        # prints its issuer when it serves

It has client credentials and authorization codes with PKCE, signed access tokens (RFC 9068) for the `resource` that was
asked for (RFC 8707), metadata (RFC 8414), keys and introspection (RFC 7662). Two things are there for tests only:
`lifetime` in a token request makes tokens that have expired, `jkt` binds them to a key.
"""

from __future__ import annotations

import secrets
import time
import warnings
from typing import Any, Final

warnings.simplefilter("ignore")  # Authlib's own, about its parts

from authlib.integrations.flask_oauth2 import AuthorizationServer  # noqa: E402
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, grants  # noqa: E402
from authlib.oauth2.rfc7636 import CodeChallenge  # noqa: E402
from authlib.oauth2.rfc7662 import IntrospectionEndpoint  # noqa: E402
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator  # noqa: E402
from flask import Flask, jsonify, request  # noqa: E402
from joserfc import jwt  # noqa: E402
from joserfc.jwk import RSAKey  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402

SCOPES: Final = {"orders:read", "orders:write"}
SECRETS: Final = {"ada-desk": "ada-secret", "bob-desk": "bob-secret", "orders-api": "api-secret"}
KEY: Final = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
CODES: dict[str, Code] = {}
ISSUED: dict[str, dict[str, Any]] = {}


class Client(ClientMixin):
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return "http://127.0.0.1:1/callback"

    def get_allowed_scope(self, scope: str) -> str:
        return " ".join(sorted(SCOPES & set((scope or "").split())))

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self.get_default_redirect_uri()

    def check_client_secret(self, client_secret: str) -> bool:
        return secrets.compare_digest(SECRETS[self.client_id], client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("client_credentials", "authorization_code")


class User:
    def get_user_id(self) -> str:
        return "ada"


class Code(AuthorizationCodeMixin):
    code_challenge_method = "S256"

    def __init__(self, client_id: str, redirect_uri: str, scope: str, challenge: str) -> None:
        self.client_id, self.redirect_uri, self.scope, self.code_challenge = client_id, redirect_uri, scope, challenge

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


class CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

    def save_authorization_code(self, code: str, asked: Any) -> None:
        form = asked.payload.data
        CODES[code] = Code(asked.client.client_id, asked.payload.redirect_uri, asked.scope, form["code_challenge"])

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found = CODES.get(code)
        return found if found is not None and found.client_id == client.client_id else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        for code in [code for code, known in CODES.items() if known is authorization_code]:
            del CODES[code]

    def authenticate_user(self, authorization_code: Code) -> User:
        return User()


class Tokens(JWTBearerTokenGenerator):  # type: ignore[misc]
    def get_jwks(self) -> dict[str, Any]:
        return {"keys": [KEY.as_dict(private=True)]}

    def get_audiences(self, client: Any, user: Any, scope: Any) -> str:
        return request.form.get("resource", self.issuer)

    def get_extra_claims(self, client: Any, grant_type: Any, user: Any, scope: Any) -> dict[str, Any]:
        return {"cnf": {"jkt": request.form["jkt"]}} if "jkt" in request.form else {}


class Introspect(IntrospectionEndpoint):  # type: ignore[misc]
    def query_token(self, token_string: str, token_type_hint: str) -> dict[str, Any] | None:
        return ISSUED.get(token_string)

    def introspect_token(self, token: dict[str, Any]) -> dict[str, Any]:
        return {"active": token["exp"] > time.time(), **token}

    def check_permission(self, token: dict[str, Any], client: Client, asked: Any) -> bool:
        return client.client_id == "orders-api"

    def create_introspection_payload(self, token: dict[str, Any] | None) -> dict[str, Any]:
        return {"active": False} if not token or token["exp"] < time.time() else self.introspect_token(token)


def make_app(issuer: str) -> Flask:
    app = Flask("authorization server")

    def save_token(token: dict[str, Any], asked: Any) -> None:
        ISSUED[token["access_token"]] = jwt.decode(token["access_token"], KEY, algorithms=["RS256"]).claims

    oauth = AuthorizationServer(app, lambda name: Client(name) if name in SECRETS else None, save_token)
    oauth.register_token_generator(
        "default", Tokens(issuer, expires_generator=lambda client, grant: int(request.form.get("lifetime", "300")))
    )
    oauth.register_grant(grants.ClientCredentialsGrant)
    oauth.register_grant(CodeGrant, [CodeChallenge(required=True)])
    oauth.register_endpoint(Introspect)

    app.post("/token", endpoint="token")(lambda: oauth.create_token_response())
    app.post("/introspect", endpoint="introspect")(lambda: oauth.create_endpoint_response(Introspect.ENDPOINT_NAME))
    app.get("/keys", endpoint="keys")(lambda: jsonify({"keys": [KEY.as_dict(private=False)]}))

    @app.get("/authorize")
    def authorize() -> Any:  # the person says yes at once
        grant = oauth.get_consent_grant(end_user=User())
        return oauth.create_authorization_response(grant_user=User(), grant=grant)

    @app.get("/.well-known/oauth-authorization-server")
    def metadata() -> Any:
        return jsonify(
            issuer=issuer,
            authorization_endpoint=f"{issuer}/authorize",
            token_endpoint=f"{issuer}/token",
            jwks_uri=f"{issuer}/keys",
            introspection_endpoint=f"{issuer}/introspect",
            scopes_supported=sorted(SCOPES),
            response_types_supported=["code"],
            grant_types_supported=["authorization_code", "client_credentials"],
            code_challenge_methods_supported=["S256"],
        )

    return app


class Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def main() -> None:
    import os
    import socket

    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # loopback
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    issuer = f"http://127.0.0.1:{port}"
    server = make_server("127.0.0.1", port, make_app(issuer), threaded=True, request_handler=Quiet, fd=sock.fileno())
    print(issuer, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
