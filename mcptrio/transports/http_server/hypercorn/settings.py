"""The settings that Hypercorn reads."""

from __future__ import annotations

import logging

from hypercorn.config import Config

from mcptrio.transports.http_server.config import HttpConfig


def hypercorn_config(config: HttpConfig) -> Config:
    """Return the settings that Hypercorn reads.

    `read_timeout` stays unset: it covers every read, so it would end a healthy client that quietly listens to a
    stream. `server_names` stays empty: the endpoint checks Host.
    """
    hyper = Config()
    hyper.alpn_protocols = ["http/1.1"]
    hyper.backlog = config.backlog
    hyper.bind = [f"unix:{config.unix_path}" if config.unix_path else f"{config.host or '::'}:{config.port}"]
    hyper.certfile = config.certfile
    hyper.keyfile = config.keyfile or config.certfile
    hyper.keyfile_password = config.keyfile_password
    hyper.errorlog = logging.getLogger("mcptrio.http")
    hyper.graceful_timeout = config.drain_timeout
    # The gate has already bounded the head; h11 holds at most one rewritten head or one chunk's size line.
    hyper.h11_max_incomplete_size = 2 * config.max_header_bytes
    hyper.include_server_header = False
    hyper.keep_alive_max_requests = config.keep_alive_max_requests
    hyper.keep_alive_timeout = config.keep_alive_timeout
    hyper.ssl_handshake_timeout = config.handshake_timeout
    hyper.websocket_max_message_size = config.websocket_max_message
    hyper.websocket_ping_interval = config.websocket_ping_interval
    hyper.worker_class = "trio"
    return hyper
