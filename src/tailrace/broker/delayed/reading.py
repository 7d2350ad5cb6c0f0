"""Reads messages that are due out of the delayed topic.

They are wanted in the order in which they are due, and lie there in the order in which they came. So they are
read in one sweep by offset; where they turn out to be too large for the memory, the later half of those that
are wanted is left for another time, as often as it takes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tailrace.broker.delayed.stored import StoredMessage, read_message
from tailrace.broker.internal import MalformedFields
from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import read
from tailrace.model import LogDamaged, Offset, OffsetOutOfRange
from tailrace.records import BatchError

_logger = logging.getLogger(__name__)

_BYTES_MAX = 4 << 20  # of messages in memory at once, or one that is larger
_READ_BYTES = 64 << 10  # where many lie together; else one batch
_TOGETHER = 8  # so many among
_TOGETHER_SPAN = 128  # so many offsets
_UNREADABLE = (OffsetOutOfRange, LogDamaged, MalformedFields, BatchError)


class Due(NamedTuple):
    """A message that is due."""

    due_ms: int
    offset: int
    stored: StoredMessage


class DueRead(NamedTuple):
    """The first messages of those that were wanted."""

    messages: list[Due]
    taken: int  # so many of those wanted, the first ones, were read or are lost
    lost: int


async def read_due(
    partition: Partition, due: Sequence[tuple[int, int]], *, bytes_max: int = _BYTES_MAX
) -> DueRead:
    """The messages at these (due, offset), as many of the first ones as may be in memory, at least one."""
    found: dict[int, StoredMessage] = {}
    offsets = sorted(offset for _, offset in due)
    wanted = set(offsets)
    size = 0
    for place, offset in enumerate(offsets):
        if offset in found or offset not in wanted:
            continue
        piece_bytes = _piece_bytes(offsets, place)
        size += await _read_near(partition, Offset(offset), wanted, found, bytes_max=piece_bytes)
        while len(due) > 1 and size > bytes_max:
            due = due[: (len(due) + 1) // 2]
            wanted = {offset for _, offset in due}
            found = {offset: stored for offset, stored in found.items() if offset in wanted}
            size = sum(map(_size_of, found.values()))
    messages = [Due(due_ms, offset, found[offset]) for due_ms, offset in due if offset in found]
    return DueRead(messages, len(due), len(due) - len(messages))


def _piece_bytes(offsets: Sequence[int], place: int) -> int:
    later = place + _TOGETHER
    together = later < len(offsets) and offsets[later] - offsets[place] <= _TOGETHER_SPAN
    return _READ_BYTES if together else 1


async def _read_near(
    partition: Partition,
    offset: Offset,
    wanted: Collection[int],
    found: dict[int, StoredMessage],
    *,
    bytes_max: int,
) -> int:
    """Find the message at `offset`, and others that lie behind it; returns how many bytes they have."""
    size = 0
    reason: Exception | str = "it is not in the log"
    try:
        portion = await read(partition, offset, bytes_max=bytes_max, read_uncommitted=True)
        for batch in portion.batches():
            if any(each in wanted for each in range(batch.first, batch.end)):
                for record in batch.records():
                    if record.offset in wanted and record.value is not None:
                        stored = found[record.offset] = read_message(record)
                        size += _size_of(stored)
    except _UNREADABLE as error:
        reason = error
    if offset not in found:
        _logger.error("delayed message is lost: offset=%d %s", offset, reason)
    return size


def _size_of(stored: StoredMessage) -> int:
    key, value, headers = stored.message
    return len(key or b"") + len(value or b"") + sum(len(each or b"") for _, each in headers)
