"""The first connection that the direct engine hands over does not block the event loop."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from functools import partial
import trio
from mcptrio import Server

class Watch:
    seen = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("hypercorn", "h11", "wsproto"):
            self.seen.append(threading.current_thread() is threading.main_thread())

async def main():
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(partial(Server("s").serve_http, port=0, engine="direct"))
        assert "hypercorn" not in sys.modules
        sys.meta_path.insert(0, Watch())
        port = int(address.url.rpartition(":")[2])
        streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3)]
        for stream in streams:
            await stream.send_all(
                b"GET /mcp HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
                b"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n"
                b"Sec-WebSocket-Protocol: mcp\\r\\n\\r\\n"
            )
        for stream in streams:
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
            await stream.aclose()
        nursery.cancel_scope.cancel()

trio.run(main)
print(len(Watch.seen) > 0, any(Watch.seen))
"""


@pytest.mark.defect("S4")
def test_the_first_websocket_does_not_block_the_loop() -> None:
    """Hypercorn is imported by then, which takes more than 50 ms: in a thread."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("True False\n", "")
