"""Storages for tokens and registrations: in memory, in files readable only by the user, in the system's keyring."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from attrs import define, field

from mcptrio.auth.client.errors import AuthorizationFailed

_MOST: Final = 1024 * 1024


class TokenStorage(Protocol):
    """A storage of records by key. Called in a thread, so it may block; several clients may share one.

    Clients in several processes that share one also need `try_lock`, see `LockingStorage`: without it two of them may
    present the same refresh token, and many authorization servers then revoke both clients' tokens.
    """

    def load(self, key: str) -> Mapping[str, Any] | None:
        """Return the record of a key, None if there is none."""
        ...

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        """Replace the record of a key; None deletes it."""
        ...


@runtime_checkable
class LockingStorage(TokenStorage, Protocol):
    """A storage whose records can be locked."""

    def try_lock(self, key: str) -> Callable[[], None] | None:
        """Lock a record and return the function that releases it; None if another client has locked it.

        The lock must end with the process that holds it, and the function must not block.
        """
        ...


@define(eq=False, repr=False)
class MemoryStorage:
    """A storage in memory, for the lifetime of the object."""

    _records: dict[str, Mapping[str, Any]] = field(factory=dict, repr=False)
    _locked: set[str] = field(factory=set, repr=False)

    def load(self, key: str) -> Mapping[str, Any] | None:
        return self._records.get(key)

    def save(self, key: str, record: Mapping[str, Any] | None) -> None:
        if record is None:
            self._records.pop(key, None)
        else:
            self._records[key] = dict(record)

    def try_lock(self, key: str) -> Callable[[], None] | None:
        if key in self._locked:
            return None
        self._locked.add(key)
        return partial(self._locked.discard, key)


class FileStorage:
    """A storage of one file per record, with mode 0600, in a folder with mode 0700. Processes may share it.

    Writes are atomic: into a new file that then replaces the old one.
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
            self._check(os.fstat(handle), key)
            data = file.read(_MOST + 1)
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            return None  # treated as absent: the next sign-in overwrites it
        return value["record"] if isinstance(value, dict) and value.get("key") == key else None

    def _check(self, found: os.stat_result, key: str) -> None:
        if os.name != "posix":
            return
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise AuthorizationFailed(f"{self._file(key)} can be read by other users: remove it, or run chmod 600")
        if found.st_uid != os.geteuid():
            # It names the token endpoint that credentials are sent to, so only this user may have written it.
            raise AuthorizationFailed(f"{self._file(key)} belongs to another user: remove it")

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

    def try_lock(self, key: str) -> Callable[[], None] | None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A file of its own: the record's file is replaced by each write. It stays, because removing it would let two
        # clients lock two different files.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(self._file(key).with_suffix(".lock"), flags, 0o600)
        if _lock(handle):
            return partial(os.close, handle)
        os.close(handle)
        return None

    def _file(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def _lock(handle: int) -> bool:
    """Lock an open file until it is closed; return False if it is locked already, in this process or another."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


class KeyringStorage:
    """A storage in the system's keyring, for one process at a time. Needs the package `keyring`.

    A keyring has no locks; use `FileStorage` for processes that run at the same time.
    """

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
