"""2025-11-25: icons, elicitation by URL, tools in sampling, argument faults as results, streams that are polled."""

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
            # client/elicitation: an empty object means form mode only
            elicitation = declared.get("elicitation")
            if isinstance(elicitation, Mapping) and elicitation and "form" not in elicitation:
                return {"elicitation": {"form": {}}}
        case "sampling/createMessage" if params.get("tools") or params.get("toolChoice"):
            return stateful.missing(declared, ("sampling", "tools"))
        case "sampling/createMessage" if params.get("includeContext") not in (None, "none"):
            # soft-deprecated; the client says so if it still gives context
            return stateful.missing(declared, ("sampling",))
    return stateful.by_method(REQUESTS, declared, method)


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
        sampling_tools=True,
        argument_faults_are_results=True,
        errors_without_id=True,
    ),
    http=replace(before.ERA.http, primes=True),
    missing=missing,
)
