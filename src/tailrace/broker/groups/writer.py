"""Appends to one partition of the offsets topic, in order, many commits to one batch.

While one append is on its way, what comes meanwhile is gathered, and goes together with the next: the slower
the disk, the larger the batches. `done` is called once per `put`, in the order of the puts, with NONE when
all of its records are durable, else with the error that a client is to be told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tailrace.broker.groups.ports import OFFSETS_TOPIC, OffsetsLog
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.records import NewRecord
from tailrace.runtime import Supervisor

_logger = logging.getLogger(__name__)

Done = Callable[[ErrorCode], None]

_RECORD_OVERHEAD_BYTES = 48  # lengths, deltas, and what an object costs while it waits

# What goes wrong with the log, in the words of a coordinator: a client looks for another one, or sends less.
_ANSWERS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


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


class OffsetsWriter:
    """The one who appends to a partition of the offsets topic."""

    def __init__(
        self,
        log: OffsetsLog,
        partition: int,
        *,
        tasks: Supervisor,
        append_bytes_max: int,
        queued_bytes_max: int,
    ) -> None:
        self._log = log
        self._partition = partition
        self._tasks = tasks
        self._append_bytes_max = append_bytes_max
        self._queued_bytes_max = queued_bytes_max
        self._queue: deque[_Piece] = deque()
        self._queued_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<OffsetsWriter of {OFFSETS_TOPIC}-{self._partition}, {len(self._queue)} pieces wait>"

    def put(self, records: Sequence[NewRecord], done: Done) -> None:
        """Append these some time soon; COORDINATOR_NOT_AVAILABLE if too much is waiting already."""
        size = sum(map(_size_of, records))
        if self._queue and self._queued_bytes + size > self._queued_bytes_max:
            raise BrokerError(
                f"{self._queued_bytes} bytes wait to be appended to {OFFSETS_TOPIC}-{self._partition}",
                code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
        pieces = list(self._cut(records))
        put = _Put(done, len(pieces))
        self._queue.extend(_Piece(put, piece) for piece in pieces)
        self._queued_bytes += size
        if self._task is None:
            self._task = self._tasks.start(f"{OFFSETS_TOPIC}-{self._partition} writer", self._run())

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
                self._end(piece, ErrorCode.NOT_COORDINATOR)

    async def _append(self, records: Sequence[NewRecord]) -> ErrorCode:
        if not records:
            return ErrorCode.NONE
        try:
            await self._log.append(self._partition, records)
        except BrokerError as error:
            _logger.warning(
                "offsets not appended: partition=%d records=%d error=%s",
                self._partition,
                len(records),
                error,
            )
            return _ANSWERS.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except StorageError:
            # The engine itself tells its owner of this one.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
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
