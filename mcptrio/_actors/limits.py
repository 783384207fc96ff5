"""The limits of sessions and their calls."""

from msgspec import Struct

from mcptrio._settings import check_fields
from mcptrio.errors import DeclarationError


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server: the number of its sessions, and the calls of each session."""

    max_sessions: int = 10_000
    """Maximum sessions in memory; further clients get an `overloaded` error, unless an idle session can be passivated
    (see `passivate_after`). Lower it if each session holds expensive resources, and let a durable store keep as many or
    more."""
    idle_timeout: float = 1800.0
    """Seconds after which a session without running calls and open streams is ended; its client opens a new one.
    Lower it if sessions hold expensive resources."""
    passivate_after: float = 30.0
    """Seconds after which an idle session is passivated, with a durable store: it is stored, and leaves the memory
    until its next request. Raise it if the session function is expensive to run again, lower it to hold fewer
    sessions."""
    confirm_timeout: float = 60.0
    """Seconds after which a session is ended if its client sent nothing after `initialize`, as probes do."""
    parked_max: int = 1000
    """Maximum calls that wait for their request to be repeated with answers; the oldest is cancelled first."""
    parked_ttl: float = 600.0
    """Seconds that they wait, and that the state which leads back to them is valid: the time for the user to
    answer."""
    max_call_memory: int = 24 * 1024 * 1024
    """Maximum bytes, when decoded, of all messages over 4 KiB that calls keep: requests that run, run as tasks, or wait
    for their turn, notifications with a handler, and answers to questions. Further ones wait for `busy_timeout` (in a
    WebSocket or over HTTP+SSE not at all) and then get an `overloaded` error. Calls that wait for the user may take
    half as much besides; the oldest is cancelled first. Raise it for slow tools that take large arguments. Stdio has no
    such bound. Results that wait for the rest of their batch (2025-03-26) count twice, also on stdio; further ones are
    replaced by an error."""
    max_subscriptions: int = 50_000
    """Maximum resources that all clients together are subscribed to, by `resources/subscribe` and
    `subscriptions/listen`; further ones get an `overloaded` error. A URI counts once more for each 250 characters. A
    subscription costs about 1 KiB."""
    check_every: float = 0.5
    """Seconds between two checks for idle sessions, zombies and expired calls; there is rarely a reason to change
    it."""
    inbox: int = 64
    """Messages that wait for the session's loop; senders block when it is full. It only smooths bursts, so there is
    rarely a reason to change it."""
    running: int = 32
    """Handlers that run at the same time; further requests wait their turn. Lower it to protect the resources that
    handlers use."""
    waiting: int = 64
    """Requests that wait for their turn. When it is reached, the transport stops reading, or answers that the server is
    overloaded."""
    call_timeout: float = 60.0
    """Seconds without progress after which a handler is cancelled. If only one tool is slow, set its own `timeout`."""
    call_timeout_hard: float = 900.0
    """Seconds after which a handler is cancelled, whatever it reports; waiting for the user does not count. Raise it
    for work of hours, or make the tool a task."""
    ask_timeout: float = 600.0
    """Seconds that the user or a model may take to answer a request of a handler."""
    ignore_cancel: float = 1.0
    """Seconds after which a cancelled handler that still runs counts as a zombie: it shields itself, or blocks in a
    thread."""
    zombies: int = 8
    """Number of zombies that ends the session, because each one holds resources that cannot be reclaimed."""
    end_grace: float = 5.0
    """Seconds that the session's own state may take to be torn down. Raise it if the session function closes slowly."""
    busy_timeout: float = 5.0
    """Seconds that a request waits for room (a slot of `HttpConfig.max_calls`, its session, body memory, call memory, a
    worker thread, a running task, a listen stream) before it is answered as overloaded. Raise it to ride out peaks, at
    the price of slower refusals."""
    gather: float = 0.005
    """Seconds to wait for further questions of a call, so that they travel in one round; each round costs the client a
    request. Used where questions travel in results (2026-07-28)."""
    notify_rate: float = 50.0
    """Progress and log messages per second that a call may send. Progress beyond it is held back; the newest wins."""
    notify_burst: int = 500
    """Messages that a call may send before `notify_rate` applies."""

    def __post_init__(self) -> None:
        check_fields(self, positive=_POSITIVE, not_negative=_NOT_NEGATIVE)
        if self.call_timeout > self.call_timeout_hard:
            raise DeclarationError(
                f"Limits.call_timeout ({self.call_timeout:g} s without progress) is more than call_timeout_hard "
                f"({self.call_timeout_hard:g} s in all), so it would have no effect: raise call_timeout_hard too"
            )


_POSITIVE = (
    "max_sessions",
    "idle_timeout",
    "passivate_after",
    "confirm_timeout",
    "parked_max",
    "parked_ttl",
    "max_call_memory",
    "max_subscriptions",
    "check_every",
    "inbox",
    "running",
    "waiting",
    "call_timeout",
    "call_timeout_hard",
    "ask_timeout",
    "zombies",
    "busy_timeout",
)
_NOT_NEGATIVE = ("ignore_cancel", "end_grace", "gather", "notify_rate", "notify_burst")
