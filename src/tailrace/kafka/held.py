"""A reply that the connection's next request waits for, as behind a muted channel of Kafka's."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.kafka.replies import Pieces


class HeldReply:
    """Known when `complete` was called."""

    __slots__ = ("_ready", "_reply", "request_bytes", "waits_for_others")

    holds = True

    def __init__(self, ready: Callable[[], None], *, waits_for_others: bool = False) -> None:
        self.request_bytes = 0
        self.waits_for_others = waits_for_others
        self._ready = ready
        self._reply: bytes | Pieces | None = None

    def complete(self, reply: bytes | Pieces) -> None:
        """This is it; empty where there is nothing to be said any more."""
        self._reply = reply
        self._ready()

    def is_known(self) -> bool:
        return self._reply is not None

    def take(self) -> bytes | Pieces | None:
        return self._reply

    def expire(self, now: float) -> float | None:  # noqa: ARG002
        """A handler has its own deadlines."""
        return None

    def finish(self) -> None:
        """A handler is let run to its end: what it began it also finishes."""
