"""The records that make a cursor durable: small ones for what changed, now and then one with everything.

A cursor has 16 slots, each a key of its own in the compacted topic. Writes are numbered by version from 1:

    version   1  2  3 ... 15   16   17 18 ... 31   32   33 ...
    slot      1  2  3 ... 15    0    1  2 ... 15    0    1 ...
              deltas      snapshot   deltas    snapshot

A delta is overwritten only after a snapshot that holds what it said, so the newest records of all keys are
always the whole cursor: the snapshot, and the deltas with a greater version in the order of their versions.
Whether compaction has run or not, and wherever the log ends after a crash, loading gives the state of the
last write that is in it.

That holds on two conditions. The log keeps writes in the order in which they were sequenced, and a crash
leaves a prefix of them: a delta that outlived the snapshot before it would take the place of one that is
still needed. So several writes of a cursor may be in flight. And after a write that failed, or may have, the
next one is a snapshot: `need_snapshot`.

What a transaction acknowledges is a record of its own, in the batch of that transaction. When it has
committed, the next record of the cursor holds the same ranges, and once that one is durable a tombstone takes
the transaction's record away. In this order the newest records are the whole cursor at any moment.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.broker.subscriptions.codec import (
    SLOTS,
    write_acks,
    write_acks_key,
    write_cursor_key,
    write_definition,
    write_definition_key,
    write_delta,
    write_snapshot,
)
from tailrace.broker.subscriptions.stored import (
    AcksKey,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredAcks,
    StoredSubscription,
)
from tailrace.records import NewRecord

_SNAPSHOT_SLOT = 0
_SLOT_BYTES = [bytes((slot,)) for slot in range(SLOTS)]  # the end of a key


class CursorRecords:
    """Numbers the writes of one cursor; `version` is the last one's."""

    __slots__ = ("_key_start", "_slot", "key", "version")

    def __init__(self, key: CursorKey, *, version: int = 0) -> None:
        self.key = key
        self.version = version
        self._key_start = write_cursor_key(key)
        # A cursor out of the log begins with a snapshot: which slots were in use is not known any more.
        self._slot = _SNAPSHOT_SLOT if version else 1

    def __repr__(self) -> str:
        where = f"{self.key.topic_id.hex[:12]}-{self.key.partition}"
        return f"<CursorRecords of {self.key.subscription} in {where}, version {self.version}>"

    def record(
        self, delta: CursorDelta, snapshot: Callable[[int], CursorSnapshot], *, time_ms: int
    ) -> NewRecord:
        """The record of the next write: the delta, or what `snapshot` gives for the new version."""
        slot = self._slot
        self._slot = (slot + 1) % SLOTS
        self.version += 1
        if slot == _SNAPSHOT_SLOT:
            value = write_snapshot(snapshot(self.version))
        else:
            value = write_delta(delta, version=self.version)
        return time_ms, self._key_start + _SLOT_BYTES[slot], value, ()

    def need_snapshot(self) -> None:
        """The next record holds everything: a write failed, or something changed that a delta cannot say."""
        self._slot = _SNAPSHOT_SLOT

    def tombstones(self, time_ms: int) -> list[NewRecord]:
        """Records after which the log holds nothing of this cursor. There is no write after them."""
        return [(time_ms, self._key_start + slot, None, ()) for slot in _SLOT_BYTES]


def definition_record(stored: StoredSubscription, *, time_ms: int) -> NewRecord:
    return time_ms, write_definition_key(stored.name), write_definition(stored), ()


def definition_tombstone(subscription: str, *, time_ms: int) -> NewRecord:
    """The subscription is gone.

    Comes before the tombstones of its cursors. After a crash in between there are cursors without a
    subscription, which loading drops; the other way round a subscription would have lost its progress.
    """
    return time_ms, write_definition_key(subscription), None, ()


def acks_record(key: AcksKey, acks: StoredAcks, *, time_ms: int) -> NewRecord:
    """What a transaction acknowledges in one partition, for a batch of that transaction."""
    return time_ms, write_acks_key(key), write_acks(acks), ()


def acks_tombstone(key: AcksKey, *, time_ms: int) -> NewRecord:
    """The acknowledgements of a transaction are in the cursor, or void."""
    return time_ms, write_acks_key(key), None, ()
