"""2025-06-18: elicitation, structured output, resource links, titles, the version header; no more batches."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from mcptrio._eras import v2025_03_26 as before
from mcptrio._eras.stateful import TO_CLIENT, by_method
from mcptrio._peer.era import Method

REQUESTS = {**before.REQUESTS, "elicitation/create": Method(TO_CLIENT, ("elicitation",))}
SHAPES = before.ERA.shapes


ERA = replace(
    before.ERA,
    date="2025-06-18",
    batching=False,
    requests=REQUESTS,
    shapes={
        **SHAPES,
        "implementation": SHAPES["implementation"] | {"title"},
        "tool": SHAPES["tool"] | {"title", "outputSchema", "_meta"},
        "resource": SHAPES["resource"] | {"title", "_meta"},
        "template": SHAPES["template"] | {"title", "_meta"},
        "prompt": SHAPES["prompt"] | {"title", "_meta"},
        "argument": SHAPES["argument"] | {"title"},
        "contents": SHAPES["contents"] | {"_meta"},
    },
    content=before.ERA.content | {"resource_link"},
    http=replace(before.ERA.http, version_header=True),
    missing=partial(by_method, REQUESTS),
)
