"""`ctx.once`: claim a key, run the function, record its result.

The record cannot be made atomic with the side effect of the function, so a claim comes first. A claim that has no
record means that the function started and its end is unknown: it is never run again, and `OnceInterrupted` says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
import trio
from msgspec import Struct

from mcptrio._actors.call import Call
from mcptrio._schema.build import dump, schema_of
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import DeclarationError, LocalProtocolError, OnceInterrupted

_POLL: Final = 0.05
_UNFINISHED: Final = ""
"""Stands for the result in a claim; no JSON text is empty."""

Record = tuple[str, str]
"""The name of a function, and its result as JSON text or `_UNFINISHED`."""


class Once(Struct, frozen=True):
    """One use of `ctx.once`.   Borrows: the call, its journal, the marks of the store.

    Where calls are replayed, the marks hold claims and records for every process that shares the store. The journal
    holds them for this call, and takes them along in the state of its questions.
    """

    call: Call
    key: str
    name: str

    @property
    def replays(self) -> bool:
        return self.call.start.era.features.asks_in_results

    @property
    def mark(self) -> str:
        return f"{self.call.journal.chain} {self.key}"

    async def run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the recorded result; run the function and record it if there is none."""
        locks = self.call.session.runtime.once_locks
        async with locks.setdefault(self.mark, trio.Lock()):  # other tasks of the call wait for the same result
            record = self.call.journal.done.get(self.key)
            if record is None or record[1] == _UNFINISHED:
                record = await self._find(record) or await self._run(fn, args)
            self._check(record)
            return msgspec.json.decode(record[1])

    async def _find(self, record: Record | None) -> Record | None:
        """Return the record of another run, or claim the key and return None.

        Raises:
            OnceInterrupted: another run has claimed the key and does not record a result.
        """
        until = trio.current_time() + self.call.session.service.limits.busy_timeout
        while True:
            found = record
            if self.replays:
                found = await (self._claim() if record is None else self._recorded()) or record
            if found is None:
                return None
            self._check(found)
            if found[1] != _UNFINISHED:
                self.call.journal.done[self.key] = found
                return found
            if not self.replays or trio.current_time() >= until:
                raise OnceInterrupted(
                    f"once({self.key!r}): an earlier run did not finish, so it may have taken effect; "
                    "it is not run again"
                )
            await trio.sleep(_POLL)  # the other run may be in progress, in another process

    def _check(self, record: Record) -> None:
        if record[0] != self.name:
            raise LocalProtocolError(
                f"once({self.key!r}) was recorded for {record[0]}; use another key for {self.name}"
            )

    async def _run(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Record:
        done = self.call.journal.done
        done[self.key] = (self.name, _UNFINISHED)  # not earlier: a state that is sent from now on carries the claim
        try:
            result = fn(*args)
            result = await result if inspect.isawaitable(result) else result
        except Exception:  # the function itself reports that it failed; a cancelled one does not
            del done[self.key]
            self._release()
            raise
        try:
            done[self.key] = record = (self.name, encode_value(dump(result)).decode())
        except (TypeError, ValueError) as error:
            text = f"once({self.key!r}): the result of {self.name} has no JSON form: {error}"
            raise DeclarationError(text) from error
        if self.replays:
            session, value = self.call.session, msgspec.json.encode(record)
            store, ttl = session.runtime.store, session.runtime.parking.ttl
            store.marks.done("once", self.mark, value, ttl, owner=session.owner)
            await store.flush()
        return record

    # -- the marks

    async def _claim(self) -> Record | None:
        """Claim the key for every process; return the claim or record of another run if there is one."""
        session, value = self.call.session, msgspec.json.encode((self.name, _UNFINISHED))
        store, ttl = session.runtime.store, session.runtime.parking.ttl
        # It outlives every state without this claim: those were sent earlier and expire after the same time.
        found = await store.marks.use("once", self.mark, value, ttl, owner=session.owner)
        if found is not None:
            return _decode(found)
        try:
            await store.flush()
        except BaseException:  # cancelled; the function has not started
            self._release()
            raise
        return None

    async def _recorded(self) -> Record | None:
        found = await self.call.session.runtime.store.marks.get("once", self.mark)
        return None if found is None else _decode(found)

    def _release(self) -> None:
        if self.replays:
            self.call.session.runtime.store.marks.drop("once", self.mark)


def _decode(mark: bytes) -> Record:
    record: Record = msgspec.json.decode(mark, type=Record)
    return record


def recordable_name(key: str, fn: Callable[..., Any]) -> str:
    """Return the name that identifies the function of a `once`.

    Raises:
        DeclarationError: its return annotation has no JSON form.
    """
    while isinstance(fn, partial):
        fn = fn.func
    name: str = getattr(fn, "__qualname__", type(fn).__qualname__)
    try:
        annotation = inspect.signature(fn, eval_str=True).return_annotation
    except Exception:  # noqa: BLE001 - no signature, or an annotation that cannot be evaluated here
        return name
    if annotation is not inspect.Signature.empty:
        try:
            schema_of(annotation)
        except DeclarationError as error:
            raise DeclarationError(
                f"once({key!r}): the return annotation of {name} has no JSON form, so its result cannot be recorded: "
                f"{error}"
            ) from error
    return name
