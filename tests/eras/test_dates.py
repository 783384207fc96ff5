"""The features of each protocol date, as tables read against the published schemas."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio._eras.choose import ERAS, Served
from mcptrio._eras.shape import lower_content, trim
from mcptrio._peer.era import Role
from mcptrio.errors import DeclarationError

D1, D2, D3, D4 = STATEFUL = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ALL = (*STATEFUL, "2026-07-28")


def since(date: str) -> set[str]:
    return {d for d in STATEFUL if d >= date}


@pytest.mark.parametrize("date", STATEFUL)
@pytest.mark.parametrize(
    ("fact", "dates"),
    [
        (lambda era: era.batching, {D2}),
        (lambda era: "elicitation/create" in era.requests, since(D3)),
        (lambda era: era.features.elicitation_url, since(D4)),
        (lambda era: era.features.sampling_tools, since(D4)),
        (lambda era: era.features.elicitation_error, {D4}),
        (lambda era: era.features.progress_message, since(D2)),
        (lambda era: era.features.errors_without_id, since(D4)),
        (lambda era: era.http.version_header, since(D3)),
        (lambda era: era.http.primes, since(D4)),
        (lambda era: "audio" in era.content, since(D2)),
        (lambda era: "resource_link" in era.content, since(D3)),
        (lambda era: "annotations" in era.shapes["tool"], set(STATEFUL)),  # sent at every revision, see I10
        (lambda era: "outputSchema" in era.shapes["tool"], since(D3)),
        (lambda era: "title" in era.shapes["tool"], since(D3)),
        (lambda era: "icons" in era.shapes["tool"], since(D4)),
        (lambda era: "completions" in era.shapes["capabilities"], since(D2)),
        (lambda era: "message" in era.shapes["progress"], since(D2)),
        (lambda era: "elicitation/create" in era.lacks, set(STATEFUL) - since(D3)),
        (lambda era: "notifications/elicitation/complete" in era.notifications, since(D4)),
        (lambda era: era.stateful, set(STATEFUL)),
        (lambda era: era.http.disconnect_cancels, set()),
    ],
)
def test_a_date_has_what_its_specification_says(date: str, fact: Any, dates: set[str]) -> None:
    assert fact(ERAS[date]) is (date in dates)


@pytest.mark.parametrize("date", STATEFUL)
def test_features_and_missing_features_of_a_date_do_not_overlap(date: str) -> None:
    era = ERAS[date]
    assert not era.lacks & (set(era.requests) | era.notifications)
    assert {"initialize", "ping", "tools/call"} <= set(era.requests)


@pytest.mark.parametrize(
    ("method", "receiver"),
    [
        ("tools/call", Role.SERVER),
        ("sampling/createMessage", Role.CLIENT),
        ("roots/list", Role.CLIENT),
        ("ping", None),
    ],
)
@pytest.mark.parametrize("date", STATEFUL)
def test_each_request_method_has_its_receiver(date: str, method: str, receiver: Role | None) -> None:
    assert ERAS[date].requests[method].receiver is receiver


# -- capabilities


@pytest.mark.parametrize(
    ("date", "declared", "method", "params", "missing"),
    [
        (D1, {}, "sampling/createMessage", {}, {"sampling": {}}),
        (D1, {"sampling": {}}, "sampling/createMessage", {}, None),
        (D1, {}, "completion/complete", {}, None),
        (D2, {}, "completion/complete", {}, {"completions": {}}),
        (D2, {"completions": {}}, "completion/complete", {}, None),
        (D1, {"resources": {}}, "resources/subscribe", {}, {"resources": {"subscribe": {}}}),
        (D1, {"resources": {"subscribe": False}}, "resources/subscribe", {}, {"resources": {"subscribe": {}}}),
        (D1, {"resources": {"subscribe": True}}, "resources/subscribe", {}, None),
        (D1, {"resources": "odd"}, "resources/subscribe", {}, {"resources": {"subscribe": {}}}),
        (D3, {}, "elicitation/create", {}, {"elicitation": {}}),
        (D3, {"elicitation": {}}, "elicitation/create", {}, None),
        (D4, {"elicitation": {}}, "elicitation/create", {"mode": "form"}, None),
        (D4, {"elicitation": {}}, "elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}),
        (D4, {"elicitation": {"url": {}}}, "elicitation/create", {"mode": "url"}, None),
        (D4, {"elicitation": {"url": {}}}, "elicitation/create", {}, {"elicitation": {"form": {}}}),
        (D4, {"sampling": {}}, "sampling/createMessage", {"tools": [{}]}, {"sampling": {"tools": {}}}),
        (D4, {"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": [{}]}, None),
        (D4, {}, "ping", {}, None),
        (D4, {}, "own/method", {}, None),
    ],
)
def test_the_missing_capability_of_a_request_is_named(
    date: str, declared: dict[str, Any], method: str, params: dict[str, Any], missing: Any
) -> None:
    assert ERAS[date].missing(declared, method, params) == missing


# -- choosing


@pytest.mark.parametrize("date", STATEFUL)
def test_a_version_that_is_served_is_agreed_to(date: str) -> None:
    assert Served().negotiate(date).date == date


@pytest.mark.parametrize("requested", ["2026-07-28", "1.0", "", None, 5, ["2025-11-25"]])
def test_any_other_version_is_answered_with_the_newest_that_has_initialize(requested: object) -> None:
    assert Served().negotiate(requested).date == D4
    assert Served.only([D1, D3]).negotiate(requested).date == D3


@pytest.mark.parametrize("dates", [["2024-11-06"], [], [D1, "latest"]])
def test_an_unknown_protocol_version_cannot_be_configured(dates: list[str]) -> None:
    with pytest.raises(DeclarationError, match=D1):
        Served.only(dates)


def test_served_dates_are_in_order_whatever_the_order_asked_for() -> None:
    assert Served.only([D3, D1]).dates == (D1, D3)
    assert set(STATEFUL) <= set(Served.only(None).dates)


# -- fitting


def test_fields_that_a_date_lacks_are_left_out() -> None:
    tool = {"name": "a", "inputSchema": {}, "title": "A", "icons": [], "annotations": {}, "outputSchema": {}}
    assert set(trim(ERAS[D1], "tool", tool)) == {"name", "inputSchema", "annotations"}
    assert set(trim(ERAS[D2], "tool", tool)) == {"name", "inputSchema", "annotations"}
    assert set(trim(ERAS[D3], "tool", tool)) == set(tool) - {"icons"}
    assert trim(ERAS[D4], "tool", tool) == tool


LINK = {"type": "resource_link", "uri": "a://b", "name": "n"}
AUDIO = {"type": "audio", "mimeType": "audio/wav", "data": "AA=="}


@pytest.mark.parametrize(
    ("date", "block", "becomes"),
    [
        (D1, LINK, {"type": "text", "text": "n: a://b"}),
        (D2, LINK, {"type": "text", "text": "n: a://b"}),
        (D3, LINK, LINK),
        (D1, AUDIO, "resource"),
        (D2, AUDIO, AUDIO),
        (D4, {"type": "hologram"}, "text"),
    ],
)
def test_content_that_a_date_lacks_becomes_something_it_can_read(date: str, block: Any, becomes: Any) -> None:
    (lowered,) = lower_content(ERAS[date], [block])
    assert lowered == becomes if isinstance(becomes, dict) else lowered["type"] == becomes
    assert lowered["type"] in ERAS[date].content
