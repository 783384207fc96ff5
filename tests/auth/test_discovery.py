"""Discovery of the authorization server: which documents are fetched, in which order, and which are trusted."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio.auth.client.challenge import Challenge
from mcptrio.auth.client.discovery import Discovered, discover, resource_candidates, server_candidates
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import canonical, is_above, well_known_of
from mcptrio.auth.ssrf import UrlRefused

from .play import (
    ENDPOINT,
    ISSUER,
    META,
    PRM,
    PRM_ROOT,
    Page,
    Play,
    missing,
    page,
    resource_page,
    server_document,
    unreachable,
    web,
)

CUSTOM = "https://mcp.example/custom/metadata.json"


def found(pages: dict[str, Page], challenge: Challenge | None = None, **how: Any) -> tuple[Discovered, list[str]]:
    play = Play(pages)
    return play.run(discover(ENDPOINT, challenge, **how)), play.urls


def refused(pages: dict[str, Page], challenge: Challenge | None = None, **how: Any) -> tuple[str, list[str]]:
    play = Play(pages)
    with pytest.raises(AuthorizationFailed) as caught:
        play.run(discover(ENDPOINT, challenge, **how))
    return str(caught.value), play.urls


def announcing(url: str) -> Challenge:
    return Challenge(scheme="bearer", parameters={"resource_metadata": url})


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        (
            "https://as.example",
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://as.example/",
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://as.example:8443/tenant1",
            [
                "https://as.example:8443/.well-known/oauth-authorization-server/tenant1",
                "https://as.example:8443/.well-known/openid-configuration/tenant1",
                "https://as.example:8443/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_an_issuers_addresses_are_tried_in_the_specifications_order(issuer: str, expected: list[str]) -> None:
    assert list(server_candidates(issuer)) == expected


@pytest.mark.parametrize("issuer", ["https://as.example?x=1", "https://as.example/#x", "as.example", "mailto:a@b"])
def test_an_issuer_is_a_plain_url(issuer: str) -> None:
    with pytest.raises(UrlRefused):
        server_candidates(issuer)


def test_a_servers_addresses_are_its_path_and_its_root() -> None:
    assert resource_candidates(ENDPOINT) == (PRM, PRM_ROOT)
    assert resource_candidates("https://mcp.example/") == (PRM_ROOT,)


def test_the_announced_address_is_asked_first_and_alone() -> None:
    discovered, urls = found({**web(), CUSTOM: resource_page()}, announcing(CUSTOM))
    assert urls == [CUSTOM, META]
    assert discovered.server.issuer == ISSUER
    assert discovered.resource == ENDPOINT


def test_without_an_announcement_the_well_known_ones_are_asked_in_order() -> None:
    pages = {
        **web(prm=missing()),
        PRM_ROOT: page({"resource": "https://mcp.example", "authorization_servers": [ISSUER]}),
    }
    discovered, urls = found(pages)
    assert urls == [PRM, PRM_ROOT, META]
    assert discovered.resource == "https://mcp.example"


def test_a_page_that_is_no_document_counts_as_missing() -> None:
    """A web application that answers every path with its start page is no metadata."""
    html = page({"resource": ENDPOINT}, 200, content_type="text/html")
    discovered, urls = found({**web(prm=html), PRM_ROOT: resource_page()})
    assert urls == [PRM, PRM_ROOT, META]
    assert discovered.metadata is not None


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/mcp",
        "https://mcp.example/other",
        "https://mcp.example/mcp/deeper",
        "https://mcp.example:8443/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example",  # right for the root document, not for this one
        "https://mcp.example/mcp?x",
        "https://mcp.example/mcp#x",
        "https://mcp.example/mc",
        None,
        7,
    ],
)
def test_neg_prm_resource_mismatch(resource: object) -> None:
    text, urls = refused(web(prm=resource_page(resource=resource)))
    assert urls == [PRM]
    assert "another server" in text


@pytest.mark.parametrize("resource", [ENDPOINT, "HTTPS://MCP.example/mcp", "https://mcp.example:443/mcp"])
def test_the_same_server_in_another_spelling_is_the_same(resource: str) -> None:
    discovered, _ = found(web(prm=resource_page(resource=resource)))
    assert discovered.resource == resource  # sent as it was published


def test_a_document_elsewhere_must_be_about_the_very_endpoint() -> None:
    root = page({"resource": "https://mcp.example", "authorization_servers": [ISSUER]})
    assert "another server" in refused({**web(), CUSTOM: root}, announcing(CUSTOM))[0]


@pytest.mark.parametrize(
    "issuer",
    [
        "https://as.example/?",
        "https://as.example//",
        "https://as.example/x",
        "https://AS.example",
        "https://as.example:443",
        "http://as.example",
        "https://honest.example",
        None,
    ],
)
def test_neg_issuer_mismatch(issuer: str | None) -> None:
    text, urls = refused(web(meta=page({**server_document(), "issuer": issuer})))
    assert "another issuer" in text or "no metadata" in text
    assert urls[:2] == [PRM, META]


@pytest.mark.defect("E11")
@pytest.mark.parametrize("listed", [ISSUER, f"{ISSUER}/"])
@pytest.mark.parametrize("own", [ISSUER, f"{ISSUER}/"])
@pytest.mark.parametrize("configured", [None, ISSUER, f"{ISSUER}/"])
def test_an_issuer_with_an_empty_path_is_the_same_with_a_slash(listed: str, own: str, configured: str | None) -> None:
    pages = web(prm=resource_page(authorization_servers=[listed]), meta=page({**server_document(), "issuer": own}))
    discovered, _ = found(pages, issuer=configured)
    assert discovered.server.issuer == own  # as the authorization server writes it


@pytest.mark.defect("E11")
def test_a_refused_identifier_is_named_next_to_the_expected_one() -> None:
    text, _ = refused(web(meta=page(server_document("https://other.example"))))
    assert "'https://other.example'" in text
    assert f"'{ISSUER}'" in text
    text, _ = refused(web(prm=resource_page(resource="https://other.example/mcp")))
    assert "'https://other.example/mcp'" in text
    assert f"'{ENDPOINT}'" in text
    text, _ = refused(web(), issuer="https://mine.example")
    assert "'https://mine.example'" in text
    assert ISSUER in text


@pytest.mark.parametrize("servers", [[], None, "https://as.example", [7]])
def test_a_server_that_names_no_authorization_server_is_refused(servers: object) -> None:
    assert "names no authorization server" in refused(web(prm=resource_page(authorization_servers=servers)))[0]


def test_of_many_authorization_servers_five_are_tried() -> None:
    many = [f"https://as{number}.example" for number in range(1000)]
    _, urls = refused(web(prm=resource_page(authorization_servers=many)))
    assert len({url.split("/")[2] for url in urls[1:]}) == 5


def test_the_next_authorization_server_is_taken_when_one_is_out_of_order() -> None:
    pages = web(prm=resource_page(authorization_servers=["https://down.example", ISSUER]))
    pages["https://down.example/.well-known/oauth-authorization-server"] = unreachable()
    assert found(pages)[0].server.issuer == ISSUER


def test_a_configured_issuer_is_the_only_one_that_will_do() -> None:
    pages = web(prm=resource_page(authorization_servers=["https://other.example", ISSUER]))
    discovered, urls = found(pages, issuer=ISSUER)
    assert discovered.server.issuer == ISSUER
    assert urls == [PRM, META]
    assert refused(pages, issuer="https://mine.example")[1] == [PRM]


# -- servers that say nothing about themselves (2025-03-26)

OWN_META = "https://mcp.example/.well-known/oauth-authorization-server"


def test_a_server_without_metadata_is_its_own_authorization_server() -> None:
    discovered, urls = found({OWN_META: page(server_document("https://mcp.example"))})
    assert urls == [PRM, PRM_ROOT, OWN_META]
    assert discovered.server.token_endpoint == "https://mcp.example/token"
    assert discovered.resource == ENDPOINT


def test_with_no_metadata_at_all_the_default_paths_are_used() -> None:
    server = found({})[0].server
    assert server.authorization_endpoint == "https://mcp.example/authorize"
    assert server.token_endpoint == "https://mcp.example/token"
    assert server.registration_endpoint == "https://mcp.example/register"


@pytest.mark.parametrize("broken", [missing(500), missing(503), unreachable()])
def test_neg_an_outage_is_not_taken_for_an_old_server(broken: Page) -> None:
    """Otherwise an attacker who can make one page fail would choose where the secrets go."""
    assert OWN_META not in refused({PRM: broken})[1]
    assert "HTTP" in refused({OWN_META: missing(500)})[0]


def test_neg_discovery_404_no_fallback() -> None:
    """A server that announces metadata and then has none is not an old one; nor is it one for configured secrets."""
    assert OWN_META not in refused({}, announcing(CUSTOM))[1]
    assert OWN_META not in refused({}, issuer=ISSUER)[1]
    assert OWN_META not in refused({}, legacy=False)[1]


# -- identifiers


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://MCP.Example/Path", "https://mcp.example/Path"),
        ("https://mcp.example:443/", "https://mcp.example"),
        ("https://mcp.example:8443", "https://mcp.example:8443"),
        ("http://[::1]:80/mcp?session=1#x", "http://[::1]/mcp"),
    ],
)
def test_the_canonical_form_of_a_servers_url(url: str, expected: str) -> None:
    assert canonical(url) == expected


def test_is_above_compares_whole_path_segments() -> None:
    assert is_above("https://x.example", "https://x.example/a/b")
    assert is_above("https://x.example/a", "https://x.example/a/b")
    assert not is_above("https://x.example/a", "https://x.example/ab")
    assert not is_above("https://y.example", "https://x.example/a")
    assert well_known_of("https://x.example/a/") == "https://x.example/.well-known/oauth-protected-resource/a"
