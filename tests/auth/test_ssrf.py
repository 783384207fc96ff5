"""SSRF: a server cannot make the client fetch from this machine or its network, however the address is spelled."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.auth.ssrf import (
    FetchPolicy,
    UrlRefused,
    check_addresses,
    check_url,
    is_public,
    origin_of,
)

OPEN = FetchPolicy()
LOCAL = FetchPolicy(loopback=True)

# Each names this machine, its network or its cloud's metadata service to some reader of URLs.
SPELLINGS = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://0x7f.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.000.000.001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://localhost%2e/",
    "https://%6c%6f%63alhost/",
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:7f00:1::]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fc00::1]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::ffff:169.254.169.254]/",
    "https://[fd00:ec2::254]/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://１２７.0.0.1/",
    "https://ⓛocalhost/",
    "https://127.0.0.1\\@as.example/",
    "https://as.example@127.0.0.1/",
    "https://as.example:pass@10.0.0.1/",
    "http://as.example/",
    "ftp://as.example/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "//as.example/",
    "https:///as.example",
    "https://as.example:99999/",
    "https://as .example/",
    "https://as.example/\r\nHost: other",
    "https://[not-an-address]/",
    "javascript:alert(1)",
    "",
]


def fetchable(url: str, policy: FetchPolicy = OPEN) -> bool:
    """As the driver does it, with a resolver to which every name is public."""
    try:
        target = check_url(url, policy)
        literal = target.host.replace(".", "").isdecimal() or ":" in target.host
        check_addresses([target.host if literal else "1.1.1.1"], target)
    except UrlRefused:
        return False
    return True


@pytest.mark.parametrize("url", SPELLINGS)
def test_neg_ssrf(url: str) -> None:
    """A server cannot point us at our own network."""
    assert not fetchable(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example/a?b#c",
        "https://1.1.1.1/",
        "https://[2606:4700::1111]/x",
        "https://8.8.8.8:8443/",
        "https://[64:ff9b::101:101]/",
    ],
)
def test_public_addresses_are_fetched(url: str) -> None:
    assert fetchable(url)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "169.254.169.254", "::ffff:10.0.0.1", "nonsense"])
def test_a_name_is_judged_by_every_address_it_resolves_to(address: str) -> None:
    """A name that rebinds, or that mixes a public with a private address, is refused whole."""
    target = check_url("https://as.example/x", OPEN)
    assert check_addresses(["1.1.1.1"], target) == ("1.1.1.1",)
    for found in ([address], ["1.1.1.1", address], [address, "1.1.1.1"]):
        with pytest.raises(UrlRefused):
            check_addresses(found, target)


def test_a_name_without_addresses_is_refused() -> None:
    with pytest.raises(UrlRefused):
        check_addresses([], check_url("https://as.example/", OPEN))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/x", "http://localhost:1/", "https://[::1]/", "http://[::1]:9/"])
def test_a_server_on_this_machine_may_name_others_here(url: str) -> None:
    target = check_url(url, LOCAL)
    assert check_addresses(["127.0.0.1", "::1"], target)
    with pytest.raises(UrlRefused):
        check_addresses(["10.0.0.1"], target)  # `localhost` in a hosts file that was tampered with
    with pytest.raises(UrlRefused):
        check_url(url, OPEN)


@pytest.mark.parametrize("url", ["http://127.1/", "http://localhost./", "http://2130706433/", "http://10.0.0.1/"])
def test_only_plain_spellings_of_this_machine_count(url: str) -> None:
    assert not fetchable(url, LOCAL)


def test_origins_that_the_user_configured_may_be_private() -> None:
    named = FetchPolicy(origins=frozenset({origin_of("https://sso.corp/login")}))
    assert check_addresses(["10.0.0.7"], check_url("https://sso.corp/token", named))
    with pytest.raises(UrlRefused):
        check_addresses(["10.0.0.7"], check_url("https://sso.corp:8443/token", named))
    with pytest.raises(UrlRefused):
        check_url("http://sso.corp/token", named)
    trusted = FetchPolicy(hosts=frozenset({"sso.corp"}))
    assert check_addresses(["10.0.0.7"], check_url("http://sso.corp/token", trusted))


@given(st.ip_addresses(v=4))
def test_wrapping_an_ipv4_address_changes_nothing(address: ipaddress.IPv4Address) -> None:
    mapped = ipaddress.IPv6Address(f"::ffff:{address}")
    translated = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | int(address))
    assert is_public(mapped) == is_public(translated) == is_public(address)
    if address.is_private or address.is_multicast or address.is_loopback or address.is_link_local:
        assert not is_public(address)


@given(st.ip_addresses(v=6))
def test_no_private_ipv6_address_is_public(address: ipaddress.IPv6Address) -> None:
    if address.is_private or address.is_multicast or address.is_site_local or address.sixtofour or address.teredo:
        assert not is_public(address) or address.ipv4_mapped is not None


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}/"):
        with suppress(UrlRefused):
            assert check_url(url, LOCAL).host
