"""Where tokens and registrations are kept: in memory, in files that only the user can read, in the system's keyring."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from attrs import define, field

from mcptrio.auth.client.errors import AuthorizationFailed

_MOST: Final = 1024 * 1024


class TokenStorage(Protocol):
    """Keeps records by key. Called in a thread, so it may block; several clients may share one."""

    def load(self, key: str) -> Mapping[str, Any] | None:
        """What was saved under the key."""
        ...

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        """Keep a record in place of the one before; None forgets it."""
        ...


@define(eq=False, repr=False)
class MemoryStorage:
    """Keeps records as long as the object lives."""

    _records: dict[str, Mapping[str, Any]] = field(factory=dict, repr=False)

    def load(self, key: str) -> Mapping[str, Any] | None:
        return self._records.get(key)

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        if record is None:
            self._records.pop(key, None)
        else:
            self._records[key] = dict(record)


class FileStorage:
    """Keeps each record in a file of its own, mode 0600, in a folder of mode 0700.

    A record is written whole or not at all: into a new file that then takes the old one's place.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"FileStorage({str(self.folder)!r})"

    def load(self, key: str) -> Mapping[str, Any] | None:
        try:
            handle = os.open(self._file(key), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
                raise AuthorizationFailed(f"{self._file(key)} can be read by others: remove it, or chmod 600")
            data = file.read(_MOST + 1)
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            return None  # as if it were not there: signing in again writes it anew
        return value["record"] if isinstance(value, dict) and value.get("key") == key else None

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        target = self._file(key)
        if record is None:
            target.unlink(missing_ok=True)
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = target.with_suffix(f".{secrets.token_hex(8)}.new")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode({"key": key, "record": dict(record)}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _file(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


class KeyringStorage:
    """Keeps records in the system's keyring. Needs the package `keyring`."""

    def __init__(self, service: str = "mcptrio") -> None:
        try:
            self._keyring: Any = import_module("keyring")
        except ImportError:
            raise AuthorizationFailed("KeyringStorage needs the package `keyring`") from None
        self.service = service

    def load(self, key: str) -> Mapping[str, Any] | None:
        text = self._keyring.get_password(self.service, key)
        try:
            value = msgspec.json.decode(text) if text else None
        except msgspec.DecodeError:
            return None
        return value if isinstance(value, dict) else None

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            self._keyring.set_password(self.service, key, msgspec.json.encode(dict(record)).decode())
        elif self._keyring.get_password(self.service, key) is not None:
            self._keyring.delete_password(self.service, key)
