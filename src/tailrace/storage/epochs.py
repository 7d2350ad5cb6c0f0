"""Which leader epoch wrote which offsets of a log (KIP-101, KIP-279, KIP-320).

A follower, or a consumer that outlived a change of leader, asks where an epoch ended and so finds the first
offset at which its own history parts from the leader's. The list is derived from the batches in the log:
replaying a log gives the same list.

Rules:
- Epochs and their first offsets only grow. A batch whose epoch is negative (nobody set one) or lower than
  the newest known one leaves the list alone: its offsets count for the newest epoch.
- Trimming keeps the epoch that holds the new start, which from then on begins there; so the newest epoch is
  known even when every batch has gone.

Written form, big-endian, inside a container that its owner checksums:

    0        4                                   16
    | count  | epoch i32 | first offset i64      | epoch ...
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tailrace.model import Epoch, Offset

_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">iq")


class LeaderEpochs:
    """The epochs of one log, oldest first, each with the offset at which it begins."""

    __slots__ = ("_epochs", "_newest", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._newest = -1  # the last of _epochs, or -1: one comparison decides about nearly every append

    def __repr__(self) -> str:
        known = ", ".join(f"{epoch} from {start}" for epoch, start in self)
        return f"<LeaderEpochs {known or 'none'}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochs):
            return NotImplemented
        return self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[tuple[Epoch, Offset]]:
        for epoch, start in zip(self._epochs, self._starts, strict=True):
            yield Epoch(epoch), Offset(start)

    @property
    def latest(self) -> Epoch | None:
        """The newest epoch that wrote anything."""
        return Epoch(self._newest) if self._epochs else None

    def apply(self, epoch: int, offset: int) -> None:
        """Take note of a batch at `offset`, written in `epoch`; called at every append, in order."""
        if epoch > self._newest:
            assert not self._starts or offset >= self._starts[-1], "batches are applied in order of offset"
            if self._starts and offset == self._starts[-1]:
                self._epochs.pop()  # a trim moved the older epoch up to here, and it holds nothing any more
                self._starts.pop()
            self._epochs.append(epoch)
            self._starts.append(offset)
            self._newest = epoch

    def end_of(self, epoch: int, *, log_end: int) -> tuple[Epoch, Offset] | None:
        """The greatest known epoch up to `epoch`, and the offset at which it ended.

        The newest epoch ends at `log_end`. An epoch older than all known ones is answered with itself and the
        first known offset: whatever it wrote is gone, and nothing below can be compared. None for an epoch
        that is negative or newer than every known one.
        """
        if epoch < 0 or epoch > self._newest:
            return None
        if epoch == self._newest:
            return Epoch(epoch), Offset(log_end)
        following = bisect_right(self._epochs, epoch)
        known = self._epochs[following - 1] if following else epoch
        return Epoch(known), Offset(self._starts[following])

    def truncate(self, offset: int) -> None:
        """Forget every epoch that begins at or after `offset`."""
        keep = bisect_left(self._starts, offset)
        del self._epochs[keep:]
        del self._starts[keep:]
        self._newest = self._epochs[-1] if self._epochs else -1

    def trim(self, offset: int) -> None:
        """Forget every epoch that ended at or before `offset`; the one that goes on begins there."""
        passed = bisect_right(self._starts, offset)
        if passed:
            del self._epochs[: passed - 1]
            del self._starts[: passed - 1]
            self._starts[0] = offset

    def copy(self) -> LeaderEpochs:
        """The same epochs, apart from this list's future."""
        twin = LeaderEpochs()
        twin._epochs = self._epochs.copy()
        twin._starts = self._starts.copy()
        twin._newest = self._newest
        return twin

    def write(self) -> bytes:
        """The bytes that `read` takes."""
        entries = (_ENTRY.pack(epoch, start) for epoch, start in self)
        return _COUNT.pack(len(self._epochs)) + b"".join(entries)

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview) -> LeaderEpochs:
        """What `write` wrote; ValueError for anything else."""
        if len(data) < _COUNT.size:
            raise ValueError(f"leader epochs need {_COUNT.size} bytes or more, got {len(data)}")
        (count,) = _COUNT.unpack_from(data)
        if len(data) != _COUNT.size + count * _ENTRY.size:
            raise ValueError(f"{count} leader epochs do not fill {len(data)} bytes")
        found = cls()
        for epoch, start in _ENTRY.iter_unpack(memoryview(data)[_COUNT.size :]):
            found._read_entry(epoch, start)
        return found

    def _read_entry(self, epoch: int, start: int) -> None:
        last_start = self._starts[-1] if self._starts else -1
        if epoch <= self._newest or start <= last_start:
            raise ValueError(f"leader epoch {epoch} from {start} follows {self._newest} from {last_start}")
        self._epochs.append(epoch)
        self._starts.append(start)
        self._newest = epoch
