"""Questions and progress of a task: `tasks/get` shows the questions, `tasks/update` answers them.

Until the task has begun it is an ordinary call: its questions go to the request that it works for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Struct, field

from mcptrio._actors.asks import ask_until_usable
from mcptrio._actors.call import Call
from mcptrio._actors.future import Reply
from mcptrio._actors.journal import Question, Read
from mcptrio._actors.reports import ask_ended, ask_sent
from mcptrio._peer.asks import check_capability
from mcptrio._peer.messages import ReplyFuture
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value, escape_surrogates
from mcptrio.errors import ConnectionLost, RequestTimeout
from mcptrio.server.context import Context

if TYPE_CHECKING:
    from mcptrio.extensions.tasks.run import TaskRun


class TaskQuestion(Struct, frozen=True):
    """One open question of a task."""

    method: str
    params: dict[str, Any]
    reply: Reply


class TaskAsks(Entity):
    """The questions and the progress of a running task: it implements `Outgoing` for the handler of the task."""

    run: TaskRun
    pending: dict[str, TaskQuestion] = field(default_factory=dict)
    """Open questions, by the keys that the client sees."""
    _shown: set[str] = field(default_factory=set)

    @property
    def answered(self) -> list[str]:
        """The keys of questions that are not open any more."""
        return [key for key in self._shown if key not in self.pending]

    def avoid(self, keys: Iterable[str]) -> None:
        """Name no question with one of these keys: an earlier run of the task did."""
        self._shown.update(keys)

    def update(self, answers: Mapping[str, Any], size: int) -> None:
        """Settle open questions; unknown keys are ignored. The asking task checks its answer (`ask_until_usable`).

        `size` is what the answers count as memory, which the call of the task keeps.
        """
        answered = [key for key in self.pending if key in answers]
        for key in answered:
            self.pending.pop(key).reply.settle(answers[key])
        if answered:
            for call in self.run.exchange.handlers:
                call.keep(size)
            self.run.touch()

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        call: Call | None = None,
        timeout: float | None = None,
        reply: Reply | None = None,
        key: str | None = None,
        read: Read | None = None,
    ) -> Any:
        if call is None:
            raise ConnectionLost(f"{method}: a task can only ask for its own call")
        if not self.run.begun:
            origin = self.run.origin
            async with call.waiting():
                return await origin._session.asks.ask(
                    method, params, call=origin._call, timeout=timeout, key=key, read=read
                )
        encode_value(params)
        check_capability(call.start.era, call.start.capabilities or {}, method, params)

        async def send(question: Question, seconds: float) -> Any:
            asked = TaskQuestion(method, params, Reply())
            async with call.waiting():
                return await self._wait_for_answer(self._new_key(question.key), asked, seconds)

        limit = inf if timeout is None else timeout
        try:
            return await ask_until_usable(call.journal, key, method, params, read, limit, send)
        finally:
            self.run.share()  # the journal has the answer now

    async def _wait_for_answer(self, key: str, question: TaskQuestion, timeout: float) -> Any:
        hub, began, outcome = self.run.exchange.service.telemetry, trio.current_time(), "cancelled"
        sent = None
        if hub:
            params, sent = ask_sent(self.run.exchange, question.method, question.params)
            question = msgspec.structs.replace(question, params=params)
        self.pending[key] = question
        self.run.touch()
        try:
            with trio.move_on_after(timeout):
                answer = await question.reply.wait()
                outcome = "ok"
                return answer
            outcome = "timeout"
            raise RequestTimeout(f"{question.method} was not answered in time")
        finally:
            if self.pending.pop(key, None) is not None:
                self.run.touch()
            if sent is not None:
                ask_ended(hub, sent, outcome, trio.current_time() - began)

    def _new_key(self, key: str) -> str:
        """Return a key that was not shown before (SEP-2663: one key MUST NOT name two questions of a task)."""
        unique, number = key, 1
        while unique in self._shown:
            number += 1
            unique = f"{key}-{number}"
        self._shown.add(unique)
        return unique

    # -- SEP-2663 has no progress or log messages of tasks; progress becomes the status message

    async def gather(self, call: int, reply: ReplyFuture) -> None:
        """Do nothing: questions of a task are shown at once."""
        await trio.lowlevel.checkpoint()

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        if not self.run.begun:
            await self._notify_origin(method, params)
            return
        self.notify_nowait(method, params)
        await trio.lowlevel.checkpoint()

    async def _notify_origin(self, method: str, params: dict[str, Any]) -> None:
        origin = self.run.origin
        if method == "notifications/progress":
            origin._call.extend()
            token = origin._call.start.progress_token
            if token is None:
                await trio.lowlevel.checkpoint()
                return
            params = {**params, "progressToken": token}
        await origin._session.asks.notify(method, params, call=origin._call)

    def notify_nowait(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/progress":
            done, total = params["progress"], params.get("total")
            numbers = f"{done:g}" if total is None else f"{done:g} of {total:g}"
            message = params.get("message")
            self.run.status_message = numbers if message is None else escape_surrogates(f"{message} ({numbers})")
            self.run.touch()


async def begin_task(ctx: Context) -> None:
    """Answer the request of a tool declared with `task="later"` now, and continue as a task.

    Questions before this call are asked in the request itself, later ones through the task. In a tool that is a task
    already, or in a plain call, it does nothing.
    """
    asks = ctx._session.asks
    if isinstance(asks, TaskAsks):
        await asks.run.begin()
    else:
        await trio.lowlevel.checkpoint()
