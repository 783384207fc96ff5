"""The part of a session that asks: questions to the peer go out as messages, and futures wait for the answers.

Asking and telling only post. At dates at which questions travel in results, those that are asked within a moment of
each other are gathered to leave together, and what the journal of a call knows already is not asked again.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

import trio

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.handling import Handling
from mcptrio._actors.journal import MISSING, Check
from mcptrio._actors.link import Link
from mcptrio._actors.reply import Reply
from mcptrio._peer.messages import Asked, Gathered, GaveUp, Message, Notified
from mcptrio._wire.jsonrpc import encode_value
from mcptrio._wire.request_state import digest
from mcptrio.errors import RequestTimeout

_TELL_AT_ONCE: Final = 32  # notifications before others have their turn


class Asking(Handling, kw_only=True):
    """Lent: the link."""

    link: Link
    _told: int = 0

    # -- what the rest of the session does

    async def _post(self, message: Message) -> None:
        raise NotImplementedError

    async def _say(self, message: Message) -> None:
        raise NotImplementedError

    # -- asking

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        call: Call | None = None,
        timeout: float | None = None,
        reply: Reply | None = None,
        key: str | None = None,
        check: Check | None = None,
    ) -> Any:
        """Ask the peer for something and wait for its answer.

        Whoever gives a `reply` keeps the time, and settles it with a `RequestTimeout` when that is over.
        Where questions travel in results, `key` names this one and `check` raises on an answer that cannot be used.

        Raises:
            McpError: the peer answered with an error.
            CapabilityMissing: it never said that it can do this.
            RequestTimeout: no answer in time.
            LinkClosed: the session ended first.
            TypeError, ValueError: the parameters have no JSON form.
        """
        encode_value(params)  # a fault is the caller's; in the loop it would be the session's
        journal, question = None, ""
        if call is not None and call.start.era.features.asks_in_results:
            journal = call.journal
            question = digest([method, params])
            key = key or journal.key_for(question)
            known = journal.look_up(key, question, check)
            if known is not MISSING:
                return known
        if reply is not None:
            timeout = inf
        else:
            reply = Reply()
            if timeout is None:
                timeout = self.service.limits.ask_timeout
        hub = self.service.telemetry
        began = 0.0
        outcome = "cancelled"
        if hub:
            began = trio.current_time()
            hub.emit(telemetry.AskSent(session=self.id, method=method))
        number = call.start.call if call is not None else None
        asked = Asked(number, method, params, reply, reply.wants_progress, key or "", check)
        if call is not None:
            call.pause()
        try:
            if journal is None and timeout == inf:  # as clients ask: the shortest way
                await self._post(asked)
                result = await reply.wait()
            else:
                with trio.move_on_after(timeout) as scope:
                    result = await self._answer(asked, gather=journal is not None)
                if scope.cancelled_caught:
                    raise RequestTimeout(f"{method} was not answered in time")
            outcome = "ok"
        except RequestTimeout:
            outcome = "timeout"
            raise
        except Exception:
            outcome = "error"
            raise
        finally:
            if not reply.settled or outcome == "timeout":
                await self._say(GaveUp(reply, outcome))
            if call is not None:
                call.resume()
            if hub:
                seconds = trio.current_time() - began
                hub.emit(telemetry.AskEnded(session=self.id, method=method, outcome=outcome, seconds=seconds))
        if journal is not None and key is not None:
            journal.record(key, question, result)
        return result

    async def _answer(self, asked: Asked, *, gather: bool) -> Any:
        await self._post(asked)
        if gather and asked.call is not None and not asked.reply.settled:
            await self._gather(asked.call, asked.reply)
        return await asked.reply.wait()

    @trio.lowlevel.enable_ki_protection
    async def _gather(self, call: int, reply: Reply) -> None:
        """Wait a moment for more questions of the same call, so that those asked together leave together."""
        await trio.sleep(self.service.limits.gather)
        if not reply.settled:
            await self._post(Gathered(call, reply))

    async def notify(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        """Tell the peer something; waits only while the link is full.

        Raises:
            LinkClosed: the session is over.
            TypeError, ValueError: the parameters have no JSON form.
        """
        encode_value(params)
        await (call.start.link if call is not None and call.start.link is not None else self.link).room()
        await self._post(Notified(call.start.call if call is not None else None, method, params))
        self._told += 1
        if not self._told % _TELL_AT_ONCE:
            await trio.lowlevel.checkpoint()

    def notify_nowait(self, method: str, params: dict[str, Any], *, call: Call | None = None) -> None:
        """Tell the peer something; dropped if the inbox is full."""
        encode_value(params)
        self.post_nowait(Notified(call.start.call if call is not None else None, method, params))
