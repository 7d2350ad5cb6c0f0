"""Requests counted by their type and error, once their answer is known.

Requests that are stored together are counted together: with one look at the clock, and one observation.
"""

from __future__ import annotations

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.net import ListenerCounters, Tally, Trace
from tailrace.wire.native import MessageType

_UNKNOWN = "UNKNOWN"  # whatever a client may send: one name for all of it


class RequestCounts:
    """What became of the requests of one listener."""

    __slots__ = ("_by_kind", "_counters", "published", "published_batches")

    def __init__(self, counters: ListenerCounters) -> None:
        self._counters = counters
        self._by_kind: dict[int, Tally] = {}
        self.published = self._find(MessageType.PUBLISH)
        self.published_batches = self._find(MessageType.PUBLISH_BATCH)

    @property
    def trace(self) -> Trace | None:
        """Who is told of single requests."""
        return self._counters.trace

    def note(self, kind: int, seconds: float, count: int = 1, *, error: BaseException | None = None) -> None:
        """So many requests of this type took so long, and ended with this error or with none."""
        tally = self._by_kind.get(kind) or self._find(kind)
        tally.note(seconds, count)
        if error is not None:
            self.fail(tally, error, count)
        if self._counters.trace is not None:
            self._tell(self._counters.trace, kind, seconds, count, error)

    def trace_published(
        self, trace: Trace, *, singles: int, batches: int, seconds: float, error: Exception | None
    ) -> None:
        """So many messages, and batches of them, were stored together, or were not."""
        for kind, count in ((MessageType.PUBLISH, singles), (MessageType.PUBLISH_BATCH, batches)):
            if count:
                self._tell(trace, kind, seconds, count, error)

    def fail(self, tally: Tally, error: BaseException, count: int) -> None:
        """So many requests, which are counted by themselves, were answered with this error."""
        if count:
            tally.fail(_name_of(error), count)

    def note_unmeasured(self, kind: int) -> None:
        """A request that waits for as long as its client says."""
        (self._by_kind.get(kind) or self._find(kind)).requests += 1

    def _tell(self, trace: Trace, kind: int, seconds: float, count: int, error: BaseException | None) -> None:
        api = MessageType(kind).name if kind in self._by_kind else _UNKNOWN
        trace(api, seconds, count=count, error="" if error is None else _name_of(error))

    def _find(self, kind: int) -> Tally:
        known = kind in MessageType.__members__.values()
        tally = self._counters.tally(MessageType(kind).name if known else _UNKNOWN)
        if known:  # else a client could fill the dictionary
            self._by_kind[kind] = tally
        return tally


def _name_of(error: BaseException) -> str:
    if isinstance(error, BrokerError):
        return error.code.name
    if isinstance(error, StorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR.name
    return ErrorCode.UNKNOWN_SERVER_ERROR.name
