"""How the conformance client signs in: one way for each scenario whose name begins with `auth/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcptrio import Client
from mcptrio.auth import FIRST_SEEN, ClientCredentials, EnterpriseManaged, OAuth, PrivateKey, WorkloadIdentity

CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
CALLING = ("scope-step-up", "scope-retry-limit", "authorization-server-migration")


async def agree(page: str) -> str:
    """The person: the suite's authorization page redirects at once, so there is nothing to read."""
    import httpx2

    async with httpx2.AsyncClient(verify=False) as browser:  # plain http: no certificates to read
        return str((await browser.get(page, follow_redirects=False)).headers["location"])


def auth_for(scenario: str, context: Mapping[str, Any]) -> Any:
    """Return the value of `auth` for `connect`."""
    match scenario.removeprefix("auth/"):
        case "pre-registration":
            known = {"client_id": context["client_id"], "client_secret": context["client_secret"]}
            return OAuth(**known, issuer=FIRST_SEEN, visit=agree)
        case "client-credentials-basic":
            return ClientCredentials(
                client_id=context["client_id"], client_secret=context["client_secret"], issuer=FIRST_SEEN
            )
        case "client-credentials-jwt":
            key = PrivateKey(pem=context["private_key_pem"], algorithm=context["signing_algorithm"])
            return ClientCredentials(client_id=context["client_id"], private_key=key)
        case "enterprise-managed-authorization" | "cross-app-access-complete-flow":
            return EnterpriseManaged(
                client_id=context["client_id"],
                client_secret=context["client_secret"],
                idp_client_id=context["idp_client_id"],
                idp_issuer=context["idp_issuer"],
                idp_token_endpoint=context["idp_token_endpoint"],
                id_token=context["idp_id_token"],
            )
        case "wif-jwt-bearer":
            return WorkloadIdentity(client_id=context["client_id"], assertion=context["valid_jwt"])
        case "dpop" | "dpop-nonce":
            return OAuth(client_name="conformance", visit=agree, dpop=True)
    return OAuth(client_name="conformance", client_metadata_url=CLIENT_METADATA_URL, visit=agree)


async def use(client: Client, scenario: str) -> None:
    """List the tools; where the scenario is about calls, make one."""
    await client.list_tools()
    if scenario.removeprefix("auth/") in CALLING:
        await client.call_tool("test-tool", {})
