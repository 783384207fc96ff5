"""Requests and notifications that this side sends: futures wait for the replies.

Where questions travel in results (2026-07-28), the questions that a call asks within a moment leave together, and a
question that the journal of the call already answers is not asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from msgspec import Raw
from msgspec.structs import replace

from mcptrio._actors.call import Call
from mcptrio._actors.future import Reply
from mcptrio._actors.journal import MISSING, Journal, Question, Read
from mcptrio._actors.reports import ask_ended, ask_sent
from mcptrio._peer.era import Role
from mcptrio._peer.messages import Asked, Gathered, GaveUp, Notified, ReplyFuture
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import RequestTimeout

if TYPE_CHECKING:
    from mcptrio._actors.service import Actor

logger = logging.getLogger("mcptrio.asks")


class Asks(Entity):
    """The outgoing requests and notifications of one session or exchange.

    It has no state: it posts messages to the inbox and waits for the reply. The machine keeps the open requests.
    """

    session: Actor

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
        """Send a request to the peer and return its result, converted by `read`.

        A caller that passes a `reply` enforces the timeout itself: it settles the reply with `RequestTimeout`.
        Where questions travel in results, `key` names this one, and an answer that `read` rejects is asked for again;
        elsewhere the exception of `read` is raised.

        Raises:
            MCPError: the peer answered with an error.
            CapabilityMissing: the peer did not declare the capability.
            RequestTimeout: no reply in time.
            ConnectionLost: the session ended first.
            TypeError, ValueError: the parameters have no JSON form.
        """
        encode_value(params)  # the error is the caller's; inside a step it would be the session's
        if reply is not None:
            timeout = inf
        elif timeout is None:
            timeout = self.session.service.limits.ask_timeout
        if call is not None and call.start.era.features.asks_in_results:

            async def send(question: Question, seconds: float) -> Any:
                asked = Asked(call.start.call, method, params, Reply(), False, question.key, question.id)
                return await self._ask(asked, call, seconds)

            return await ask_until_usable(call.journal, key, method, params, read, timeout, send)
        number, reply = None if call is None else call.start.call, reply or Reply()
        answer = await self._ask(Asked(number, method, params, reply, reply.wants_progress), call, timeout)
        return answer if read is None else read(answer)

    async def _ask(self, asked: Asked, call: Call | None, timeout: float) -> Any:
        if call is None:
            return await self._send(asked, None, timeout)
        async with call.waiting():
            return await self._send(asked, call, timeout)

    async def _send(self, asked: Asked, call: Call | None, timeout: float) -> Any:
        """Send the request, wait for the reply, and withdraw the request if the caller gives up."""
        reply, hub, sent, began = asked.reply, self.session.service.telemetry, None, 0.0
        if hub:
            began = trio.current_time()
            params, sent = ask_sent(self.session, asked.method, asked.params)
            if sent.meta:
                asked = replace(asked, params=params)
        outcome, failed = "cancelled", None
        try:
            result = await self._wait(asked, call, timeout)
            outcome = "tool_error" if type(result) is dict and result.get("isError") is True else "ok"
            return result
        except RequestTimeout:
            outcome = "timeout"
            raise
        except Exception as error:
            outcome, failed = "error", error
            raise
        finally:
            if not reply.settled or outcome == "timeout":
                self.session.inbox.post_soon(GaveUp(reply, outcome))
            if sent is not None:
                ask_ended(hub, sent, outcome, trio.current_time() - began, failed)
                failed = None

    async def _wait(self, asked: Asked, call: Call | None, timeout: float) -> Any:
        if timeout == inf:  # as clients ask: without a cancel scope
            return await self._reply(asked, call)
        with trio.move_on_after(timeout):
            return await self._reply(asked, call)
        raise RequestTimeout(f"{asked.method} was not answered in time")

    async def _reply(self, asked: Asked, call: Call | None) -> Any:
        await self.session.inbox.post(asked)
        if call is not None and call.start.era.features.asks_in_results and not asked.reply.settled:
            await self.gather(call.start.call, asked.reply)
        return await asked.reply.wait()

    @trio.lowlevel.enable_ki_protection
    async def gather(self, call: int, reply: ReplyFuture) -> None:
        """Wait a moment for further questions of the same call, so that they leave in one round."""
        await trio.sleep(self.session.service.limits.gather)
        if not reply.settled:
            await self.session.inbox.post(Gathered(call, reply))

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        """Send a notification; blocks only while the link is full.

        Raises:
            ConnectionLost: the session is over.
            TypeError, ValueError: the parameters have no JSON form.
        """
        link = self.session.link if call is None or call.start.link is None else call.start.link
        if link.full:
            await link.room()
        if self.session.service.role is Role.SERVER:
            # The notifications of all calls of one client must not fill a turn of the event loop: others wait for it.
            turns, owner = self.session.runtime.turns, self.session.owner
            if owner != turns.only_owner:
                await turns.take(owner)
        encoded = Raw(encode_value(params))  # only now: what waits for room needs no second copy
        await self.session.inbox.post(Notified(None if call is None else call.start.call, method, encoded))
        await trio.lowlevel.checkpoint()

    def notify_nowait(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; it is dropped if the inbox is full."""
        encoded = Raw(encode_value(params))
        self.session.inbox.post_nowait(Notified(None, method, encoded))


async def ask_until_usable(
    journal: Journal,
    key: str | None,
    method: str,
    params: dict[str, Any],
    read: Read | None,
    timeout: float,
    send: Callable[[Question, float], Awaitable[Any]],
) -> Any:
    """Return the first answer that `read` accepts: a recorded one, one that came with the request, or one of `send`.

    `send` asks the client and waits for its answer, for so many seconds. `read` may run code of the user, so it runs
    here, in the task that asks, and whatever it raises makes the answer unusable.
    """
    until = trio.current_time() + timeout
    with journal.asking(key, method, params) as question:
        await trio.lowlevel.checkpoint()  # a loop over recorded answers must not block the event loop
        answer = journal.look_up(question)
        while True:
            if answer is MISSING:
                try:
                    answer = await send(question, until - trio.current_time())
                except RequestTimeout:
                    journal.record(question)
                    raise
            try:
                value = answer if read is None else read(answer)
            except Exception as error:  # noqa: BLE001 - a form may run any code
                logger.info("asking again under the key %r: %s", question.key, error)
                answer = MISSING
                continue
            journal.record(question, answer)
            return value
