"""2025-11-25: icons, URL elicitation, tools in sampling, invalid arguments as tool errors, polled streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from mcptrio._eras import stateful
from mcptrio._eras import v2025_06_18 as before

REQUESTS = before.REQUESTS
SHAPES = before.ERA.shapes


def missing(declared: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    match method:
        case "elicitation/create" if params.get("mode") == "url":
            return stateful.missing(declared, ("elicitation", "url"))
        case "elicitation/create":
            # client/elicitation: an empty object means form mode; so does one with other members only, which the
            # client of the TypeScript SDK sends ({"applyDefaults": true})
            elicitation = declared.get("elicitation")
            if isinstance(elicitation, Mapping) and "url" in elicitation and "form" not in elicitation:
                return {"elicitation": {"form": {}}}
        case "sampling/createMessage" if params.get("tools") or params.get("toolChoice"):
            return stateful.missing(declared, ("sampling", "tools"))
    return stateful.by_method(REQUESTS, declared, method, params)


ERA = replace(
    before.ERA,
    date="2025-11-25",
    notifications=before.ERA.notifications | {"notifications/elicitation/complete"},
    shapes={
        **SHAPES,
        "implementation": SHAPES["implementation"] | {"icons", "websiteUrl", "description"},
        "tool": SHAPES["tool"] | {"icons", "execution"},
        "resource": SHAPES["resource"] | {"icons"},
        "template": SHAPES["template"] | {"icons"},
        "prompt": SHAPES["prompt"] | {"icons"},
        "sampling": SHAPES["sampling"] | {"tools", "toolChoice"},
    },
    features=replace(
        before.ERA.features,
        elicitation_url=True,
        elicitation_error=True,
        sampling_tools=True,
        errors_without_id=True,
    ),
    http=replace(before.ERA.http, primes=True),
    missing=missing,
)
