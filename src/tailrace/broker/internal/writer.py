"""Appends to one partition of an internal topic, in order, many changes to one batch.

While one append is on its way, what comes meanwhile is gathered, and goes together with the next: the slower
the disk, the larger the batches. `done` is called once per `put`, in the order of the puts, with NONE when
all of its records are durable, else with the error that a client is to be told (`ErrorMap`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailrace.broker.internal.log import InternalLog
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.records import NewRecord
from tailrace.runtime import Supervisor

_logger = logging.getLogger(__name__)

Done = Callable[[ErrorCode], None]

_RECORD_OVERHEAD_BYTES = 48  # lengths, deltas, and what an object costs while it waits


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMap:
    """What goes wrong with the log, in the words of whoever keeps his state there."""

    codes: Mapping[ErrorCode, ErrorCode]  # of the log -> for the client
    otherwise: ErrorCode  # whatever is not among them, and where too much waits: the client may come back
    stopped: ErrorCode  # this node does not write here any more


class _Put:
    """What one caller handed over; it may have been cut into several pieces."""

    __slots__ = ("done", "error", "pieces_left")

    def __init__(self, done: Done, pieces: int) -> None:
        self.done = done
        self.pieces_left = pieces
        self.error = ErrorCode.NONE


class _Piece:
    __slots__ = ("put", "records", "size")

    def __init__(self, put: _Put, records: Sequence[NewRecord]) -> None:
        self.put = put
        self.records = records
        self.size = sum(map(_size_of, records))


class StateWriter:
    """The one who appends to a partition of an internal topic."""

    def __init__(
        self,
        log: InternalLog,
        partition: int,
        *,
        topic: str,
        errors: ErrorMap,
        tasks: Supervisor,
        append_bytes_max: int,
        queued_bytes_max: int,
    ) -> None:
        self._log = log
        self._partition = partition
        self._name = f"{topic}-{partition}"
        self._errors = errors
        self._tasks = tasks
        self._append_bytes_max = append_bytes_max
        self._queued_bytes_max = queued_bytes_max
        self._queue: deque[_Piece] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<StateWriter of {self._name}, {len(self._queue)} pieces wait>"

    def put(self, records: Sequence[NewRecord], done: Done) -> None:
        """Append these some time soon; BrokerError (`otherwise`) if too much is waiting already."""
        size = sum(map(_size_of, records))
        if self._queue and self._queued_bytes + size > self._queued_bytes_max:
            raise BrokerError(
                f"{self._queued_bytes} bytes wait to be appended to {self._name}",
                code=self._errors.otherwise,
            )
        pieces = list(self._cut(records))
        put = _Put(done, len(pieces))
        self._queue.extend(_Piece(put, piece) for piece in pieces)
        self._queued_bytes += size
        if self._task is None:
            self._task = self._tasks.start(f"{self._name} writer", self._run())

    async def wait_idle(self) -> None:
        """Return when everything that was put is done."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._queue:
                round_ = self._take_round()
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                try:
                    error = await self._append([record for piece in round_ for record in piece.records])
                finally:
                    for piece in round_:
                        self._end(piece, error)
        finally:
            self._task = None
            while self._queue:  # only where the task was cancelled, or failed
                piece = self._queue.popleft()
                self._queued_bytes -= piece.size
                self._end(piece, self._errors.stopped)

    async def _append(self, records: Sequence[NewRecord]) -> ErrorCode:
        if not records:
            return ErrorCode.NONE
        try:
            await self._log.append(self._partition, records)
        except BrokerError as error:
            _logger.warning("not appended: log=%s records=%d error=%s", self._name, len(records), error)
            return self._errors.codes.get(error.code, self._errors.otherwise)
        except StorageError:
            # The engine itself tells its owner of this one.
            return self._errors.otherwise
        return ErrorCode.NONE

    def _take_round(self) -> list[_Piece]:
        """As many pieces as fit into one append, at least one."""
        taken: list[_Piece] = []
        size = 0
        while self._queue and (not taken or size + self._queue[0].size <= self._append_bytes_max):
            piece = self._queue.popleft()
            taken.append(piece)
            size += piece.size
        self._queued_bytes -= size
        return taken

    def _cut(self, records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
        """Runs of records that fit into one append each; a single record that does not is left to the log."""
        start = size = 0
        for index, record in enumerate(records):
            size += _size_of(record)
            if size > self._append_bytes_max and index > start:
                yield records[start:index]
                start, size = index, _size_of(record)
        yield records[start:]

    def _end(self, piece: _Piece, error: ErrorCode) -> None:
        put = piece.put
        put.pieces_left -= 1
        put.error = put.error or error
        if not put.pieces_left:
            put.done(put.error)


def _size_of(record: NewRecord) -> int:
    _, key, value, _ = record
    return _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
