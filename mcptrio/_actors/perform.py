"""Perform the effects of the machine. Nothing here waits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mcptrio import telemetry
from mcptrio._peer.effects import (
    AskInResult,
    Attach,
    Close,
    Effect,
    End,
    Gather,
    Ignored,
    Progressed,
    Send,
    Settle,
    Start,
    Stop,
)
from mcptrio._peer.messages import Asked, Cause, HungUp, Message, ReplyFuture
from mcptrio._wire.jsonrpc import Notice, encode, encode_batch, encode_notice
from mcptrio._wire.sized import size_of
from mcptrio.errors import ConnectionLost

if TYPE_CHECKING:
    from mcptrio._actors.service import Actor

logger = logging.getLogger("mcptrio.session")


def perform(actor: Actor, effects: list[Effect]) -> None:
    """Perform the effects in order."""
    for effect in effects:
        match effect:
            case Send():
                _send(actor, effect)
            case Start():
                # An inline handler ends at once; its effects come first.
                if more := actor.handlers.start(effect):
                    perform(actor, more)
            case Settle(reply, result, error, call):
                if call is not None and (size := size_of(result)):
                    actor.handlers.keep(call, size)
                reply.settle(result, error)
            case AskInResult(start, questions):
                perform(actor, actor.handlers.ask_in_result(start, questions))
            case Gather(call, reply):
                actor.spawn(actor.asks.gather, call, reply)
            case Attach(call, start):
                actor.handlers.attach(call, start)
            case Stop(call, cause):
                actor.handlers.stop(call, cause)
            case Progressed(reply, params):
                _report_progress(reply, params)
            case End(link):
                link.end()
            case Ignored(what):
                if hub := actor.service.telemetry:
                    hub.emit(telemetry.Dropped(kind=what, session=actor.id))
            case Close(cause):
                actor.close(cause)


def settle_all(actor: Actor, cause: Cause, unprocessed: list[Message]) -> None:
    """Settle what waits for a session that is over. Nothing is sent: the link may be what has failed."""
    for effect in actor.peer.step(HungUp(cause)):
        match effect:
            case Settle(reply, result, error):
                reply.settle(result, error)
            case Stop(call, why):
                actor.handlers.stop(call, why)
    for message in unprocessed:
        if isinstance(message, Asked):
            message.reply.settle(error=ConnectionLost(f"{message.method}: {cause.value}"))


def _send(actor: Actor, effect: Send) -> None:
    frame = effect.frame
    if isinstance(frame, Notice):
        data = encode_notice(frame)
    else:
        data = encode_batch(frame) if isinstance(frame, tuple) else encode(frame)
    (effect.link or actor.link).post(data, final=effect.final, status=effect.status)


def _report_progress(reply: ReplyFuture, params: dict[str, object]) -> None:
    try:
        reply.progressed(params)
    except Exception:
        logger.exception("a progress callback failed")
