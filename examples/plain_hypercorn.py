"""An MCP endpoint as an ASGI application, for users who run Hypercorn themselves.

    hypercorn -k trio examples/plain_hypercorn.py:app

`mcptrio run` isolates its connections better than Hypercorn's own accept loop does; `install_guard` adds most of that.
It cannot add a limit on connections, or a shutdown that lets running calls finish.
"""

from __future__ import annotations

import hashlib

from mcptrio import Server
from mcptrio.hypercorn import install_guard

install_guard()
server = Server("plain", version="1.0.0")


@server.tool(read_only=True)
def digest(text: str, algorithm: str = "sha256") -> str:
    """Compute the digest of a text, in hexadecimal.

    Args:
        text: What to digest.
        algorithm: sha256, sha512, blake2b ...
    """
    return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()


app = server.asgi()
