"""Authorization: the values of `auth` in `mcptrio.connect(url, auth=…)`, and storages for tokens."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [  # the classes live above this layer, in a transport; imported on first use, as in `mcptrio` itself
    "FIRST_SEEN",
    "AuthorizationFailed",
    "ClientCredentials",
    "EnterpriseManaged",
    "FileStorage",
    "KeyringStorage",
    "LockingStorage",
    "MemoryStorage",
    "OAuth",
    "PrivateKey",
    "TokenStorage",
    "WorkloadIdentity",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mcptrio.transports.oauth"), name)
