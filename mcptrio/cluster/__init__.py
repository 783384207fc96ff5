"""Several workers, one endpoint: worker leases, the placement of sessions, forwarding between workers, takeover."""

from __future__ import annotations

from mcptrio.cluster.config import ClusterConfig

__all__ = ["ClusterConfig"]
