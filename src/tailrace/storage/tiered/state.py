"""Snapshots of what is derived from a log: leader epochs, producers, aborted transactions.

    0  8s  "TRTIER01"    8  u32  length of the epochs    12  u32  length of the aborted transactions
   16  u32  form of the producers (1 or 2)    20  u32  CRC32C of everything but itself
   24      epochs, aborted transactions, producers

The log up to an offset gives the state of that offset; the row says which one. A snapshot that cannot be read
costs a longer replay and nothing else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tailrace.records import Batch, crc32c
from tailrace.storage.aborted import AbortedList, read_aborted, write_aborted
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates

_HEAD = struct.Struct("<8sIII")
_CRC = struct.Struct("<I")
_BODY_AT = _HEAD.size + _CRC.size
_MAGIC = b"TRTIER01"


@dataclass(slots=True)
class LogState:
    """What the batches of a log leave behind."""

    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates = field(default_factory=ProducerStates)
    aborted: AbortedList = field(default_factory=AbortedList)

    def apply(self, batch: Batch) -> None:
        """The next batch, as it was appended."""
        self.epochs.apply(batch.leader_epoch, batch.base_offset)
        aborted = self.producers.apply(batch)
        if aborted is not None:
            self.aborted.add(aborted)

    def trim(self, start: int) -> None:
        """The log begins at `start`."""
        self.epochs.trim(start)
        self.aborted.trim(start)
        self.producers.forget_trimmed(start)


def write_state(epochs: LeaderEpochs, producers: ProducerStates, aborted: AbortedList) -> bytes:
    """The bytes of a snapshot."""
    form = producers.form
    parts = [epochs.write(), write_aborted(0, aborted), producers.write(form)]
    head = _HEAD.pack(_MAGIC, len(parts[0]), len(parts[1]), form)
    body = b"".join(parts)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def read_state(data: bytes) -> LogState | None:
    """What `write_state` wrote; None if a byte is wrong or missing."""
    if len(data) < _BODY_AT:
        return None
    magic, epochs_length, aborted_length, form = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    body = data[_BODY_AT:]
    if magic != _MAGIC or crc != crc32c(body, crc32c(data[: _HEAD.size])) or form not in (1, 2):
        return None
    producers_at = epochs_length + aborted_length
    if producers_at > len(body):
        return None
    aborted = read_aborted(body[epochs_length:producers_at], 0)
    if aborted is None:
        return None
    try:
        epochs = LeaderEpochs.read(body[:epochs_length])
        producers = ProducerStates.read(body[producers_at:], form)
    except ValueError:
        return None
    return LogState(epochs, producers, AbortedList(aborted))
