"""Authorization: the values of `auth` in `mcptrio.connect(url, auth=…)`, and storages for tokens."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

# Lazy re-exports, as in `mcptrio` itself: the classes live above this layer, in the transport, and are imported on
# first use because few programs need them.
_CLIENT: Final = "mcptrio.transports.oauth"
_NAMES: Final = {
    "FIRST_SEEN": _CLIENT,
    "AuthorizationFailed": _CLIENT,
    "ClientCredentials": _CLIENT,
    "EnterpriseManaged": _CLIENT,
    "FileStorage": _CLIENT,
    "KeyringStorage": _CLIENT,
    "LockingStorage": _CLIENT,
    "MemoryStorage": _CLIENT,
    "OAuth": _CLIENT,
    "PrivateKey": _CLIENT,
    "TokenStorage": _CLIENT,
    "WorkloadIdentity": _CLIENT,
}

__all__ = [  # see __getattr__
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
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)
