"""2025-03-26: Streamable HTTP, batches, audio, tool annotations, the completions capability, progress messages."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from mcptrio._eras import v2024_11_05 as before
from mcptrio._eras.stateful import TO_SERVER, by_method
from mcptrio._peer.era import Method

REQUESTS = {**before.REQUESTS, "completion/complete": Method(TO_SERVER, ("completions",))}
SHAPES = before.ERA.shapes


ERA = replace(
    before.ERA,
    date="2025-03-26",
    batching=True,
    requests=REQUESTS,
    shapes={
        **SHAPES,
        "capabilities": SHAPES["capabilities"] | {"completions"},
        "progress": SHAPES["progress"] | {"message"},
    },
    content=before.ERA.content | {"audio"},
    features=replace(before.ERA.features, progress_message=True),
    missing=partial(by_method, REQUESTS),
)
