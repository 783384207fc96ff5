"""Run a call of a process that died again, on its own stream: the client that resumes the stream gets the rest.

Only handlers that may run twice get here. Progress that the stream holds already is not repeated, because it may only
grow; log messages may be.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import msgspec

from mcptrio._peer.messages import Received
from mcptrio._wire.jsonrpc import Request
from mcptrio.stores.base import LaggedBehind, Store, StreamKey, UnknownCursor

from .calls import CallRecord
from .event_stream import is_notification
from .links import HttpLink
from .message import HttpRequest
from .post import PostStream, ReplyPhase

_PROGRESS = "notifications/progress"


async def run_again(http: HttpLink, head: HttpRequest, name: str, call: CallRecord, last: int) -> bool:
    """Run a call again whose stream has `last` events; `head` is the request that continues the session.

    Return False if its caller has too many calls, or too many are being served: it does not run then.
    """
    parts, session = http.parts, http.session
    request = Request(call.ids[0], call.method, call.params or {})
    own = copy.copy(head)
    own.places = own.body_memory = 0  # they belong to the request that continues the session
    own.link = own.context = None
    log = http.new_log(name)
    log.last = log.taken = last
    seen = await _seen(parts.store, StreamKey(session.id, name), last)
    if not parts.admission.enter_at_once(own):
        return False
    post = http.posts[name] = PostStream(
        head=own,
        frame=request,
        parts=parts,
        stream_after=math.inf,
        http=http,
        name=name,
        json_only=False,
        phase=ReplyPhase.STREAMING,
        log=log,
        leave_out=lambda data: is_notification(data) and -math.inf < _progress_of(data) <= seen,
    )
    session.inbox.post_soon(Received(request, post))
    post.detached()  # the client has `resume_grace` to come back
    return True


async def _seen(store: Store, key: StreamKey, last: int) -> float:
    """Return the largest progress in a stream; the newest events tell, if the oldest were removed."""
    found = -math.inf
    for after in (0, max(0, last - 100), max(0, last - 1)):
        try:
            follower = store.follow(key, after)
            for _ in range(last - after):
                found = max(found, _progress_of((await follower.receive()).data))
        except (UnknownCursor, LaggedBehind):
            continue
        break
    return found


def _progress_of(data: bytes) -> float:
    """Return the number of a progress notification; minus infinity for any other message."""
    try:
        message: Any = msgspec.json.decode(data)
        return float(message["params"]["progress"]) if message.get("method") == _PROGRESS else -math.inf
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return -math.inf
