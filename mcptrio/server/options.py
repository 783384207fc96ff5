"""The keywords of `Server.run` and the kinds of `auth=`, for type checkers; nothing imports this module to serve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from mcptrio.auth.server import BearerAuth, ClientCertificates, StaticTokens
from mcptrio.cluster.config import ClusterConfig
from mcptrio.stores import Store
from mcptrio.transports.http_server.endpoint.message import Authenticator
from mcptrio.transports.http_server.options import HttpOptions

Auth: TypeAlias = BearerAuth | StaticTokens | ClientCertificates | Authenticator


class RunOptions(HttpOptions, total=False):
    """The keywords of `Server.run`: those of `HttpConfig` and these.

    Those of `HttpConfig` need a transport over HTTP, except `json_limits`.
    """

    auth: Auth | None
    """Authenticates callers over HTTP, see `Server.serve_http`."""
    store: str | Store | None
    """The store of resumable streams, or its URL: `memory`, `sqlite:///FILE.db`."""
    cluster: ClusterConfig | None
    """How this process takes part in a cluster, with a store that several processes share."""
    protocols: Iterable[str] | None
    """Serve only these protocol versions, in place of those that the server was made with."""
    state_keys: Iterable[str] | None
    """Keys that encrypt the state of a call, in place of those that the server was made with."""
