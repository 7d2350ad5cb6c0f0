"""What a log remembers of its idempotent and transactional producers (KIP-98).

A producer numbers its records per partition. The five newest batches of every producer are remembered, as
many as a client may have in flight, so that a batch sent again is recognised and answered with the offset it
already has, and a hole in the numbers is refused instead of stored. The state is derived from the batches
in the log and applied at append; after a truncation its owner rebuilds it from a snapshot and what follows.

Rules, for a batch that names a producer:
- An older epoch than the newest one seen is refused (INVALID_PRODUCER_EPOCH).
- The same epoch, and exactly the sequences of a remembered batch: a duplicate.
- The same epoch otherwise goes on at the sequence after the last, 2^31-1 being followed by 0, and a newer
  epoch starts at 0 (else OUT_OF_ORDER_SEQUENCE_NUMBER).
- A producer that is not known, because it is new or because its batches are gone, may go on anywhere.
- A control batch carries no sequence: it moves the epoch and leaves the sequences of its own epoch alone.
- A transactional batch opens a transaction of its producer at its base offset, if none is open, and the next
  marker of that producer ends it. With a new epoch its first sequence is 0, known producer or not (KIP-890):
  only a batch that a coordinator has not seen could begin elsewhere. A client without KIP-890 part 2 keeps
  its epoch: a partition that has forgotten it takes any sequence (`any_sequence`).
- A marker of an older coordinator epoch than the last one is refused (TRANSACTION_COORDINATOR_FENCED).

Until its marker is visible, a transaction holds back the last stable offset: also while the marker is only
sequenced (`first_undecided`).

Clients choose producer ids, so the number of producers is bounded: of a log by PRODUCERS_MAX here, of a node
by the owner of the logs (`forget_oldest`). The producer that was quiet for longest is forgotten first, and
none whose newest batch is not durable yet: its client may still send that batch again; and none whose
transaction is open: coordinators bound their number. A producer that was forgotten and comes back is not
known. Its next batch is taken with any sequence (as Kafka does after producer.id.expiration.ms), so only a
retry of a batch from before would be stored twice.

`check` decides and `apply` believes: what is in the log was accepted by a leader who may have known less. An
older epoch in the log never replaces a newer one.

Written form 1, big-endian, inside a container that its owner checksums; producers in ascending order of id:

    u32 producers, then for each:
    | id i64 | epoch i16 | next sequence i32 (-1: any) | last offset i64 | newest timestamp i64 | count u8 |
    and for each of `count` batches, oldest first:
    | base sequence i32 | last offset delta i32 | base offset i64 | max timestamp i64 |

Form 2 is written where a producer has had a transaction. Behind `count` each producer also has:
    | first offset i64 (-1: none open) | time of its first batch i64 | coordinator epoch i32 (-1: no marker) |
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.records import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, BatchError, read_marker
from tailrace.storage.aborted import AbortedEntry

BATCHES_KEPT = 5
PRODUCERS_MAX = 10_000
"""Of one log: as many as clients that a listener lets connect."""
NODE_PRODUCERS_MAX = 50_000
"""Of all logs of a node. A log on disk knows each of its producers twice: as appended and as applied."""
_NO_END = 1 << 63
_PACKED_AT_ONCE = 128  # producers: well under a millisecond
_ANY_SEQUENCE = -1
_NONE = -1
_OF_TRANSACTIONS = TRANSACTIONAL_BIT | CONTROL_BIT
_SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap from 2^31-1 to 0

_COUNT = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhiqqB")
_TRANSACTION = struct.Struct(">qqi")
_BATCH = struct.Struct(">iiqq")


class Duplicate(NamedTuple):
    """A batch that is in the log already: where it is, and its newest timestamp."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class Standing(NamedTuple):
    """Where a producer stands."""

    epoch: int
    next_sequence: int  # -1 while any is right
    end_offset: Offset  # behind its newest batch


class OpenTransaction(NamedTuple):
    """A transaction that has records in this log and no marker yet."""

    epoch: int  # of its producer
    first_offset: Offset
    started_ms: int  # greatest timestamp of its first batch: what the client says, unless the topic stamps


class ProducerDescription(NamedTuple):
    """A producer as an administrator sees it."""

    producer_id: int
    epoch: int
    last_sequence: int  # -1 while any is right
    timestamp_ms: int  # of its newest record
    coordinator_epoch: int  # of its newest marker; -1: it had none
    first_offset: int  # of its open transaction; -1: none is open


class SentRecord(NamedTuple):
    """A record of a remembered batch."""

    offset: Offset
    timestamp_ms: int  # the newest of its batch


class _Sent(NamedTuple):
    """A remembered batch."""

    base_sequence: int
    last_offset_delta: int  # of its sequences too: both count records
    base_offset: int
    timestamp_ms: int


class _Ending(NamedTuple):
    """A transaction whose marker is in the log and may not be visible yet."""

    first_offset: int
    marker_offset: int


class _Producer:
    """One producer as this log has seen it."""

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "first_offset",
        "idle_since_ms",
        "last_offset",
        "next_sequence",
        "recent",
        "started_ms",
        "timestamp_ms",
    )

    def __init__(
        self, *, epoch: int, next_sequence: int, last_offset: int = -1, timestamp_ms: int = -1
    ) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence  # -1 while any is right
        self.last_offset = last_offset  # of its newest batch, control batches too
        self.timestamp_ms = timestamp_ms
        self.idle_since_ms: int | None = None  # None: it sent something since somebody looked
        self.recent: tuple[_Sent, ...] = ()  # a deque would take 600 bytes more
        self.first_offset = _NONE  # of the open transaction
        self.started_ms = _NONE  # of the open transaction
        self.coordinator_epoch = _NONE  # of the newest marker

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Producer):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def _values(self) -> tuple[object, ...]:
        standing = (self.epoch, self.next_sequence, self.last_offset, self.timestamp_ms, self.recent)
        return (*standing, self.first_offset, self.started_ms, self.coordinator_epoch)

    @property
    def has_had_transaction(self) -> bool:
        return self.first_offset >= 0 or self.coordinator_epoch >= 0

    def find(self, batch: Batch) -> _Sent | None:
        for sent in self.recent:
            if (
                sent.base_sequence == batch.base_sequence
                and sent.last_offset_delta == batch.last_offset_delta
            ):
                return sent
        return None

    def copy(self) -> _Producer:
        twin = _Producer(
            epoch=self.epoch,
            next_sequence=self.next_sequence,
            last_offset=self.last_offset,
            timestamp_ms=self.timestamp_ms,
        )
        twin.recent = self.recent
        twin.take_transaction(self)
        return twin

    def take_transaction(self, other: _Producer) -> None:
        """What a new epoch of a producer does not change: an open transaction ends by its marker only."""
        self.first_offset, self.started_ms = other.first_offset, other.started_ms
        self.coordinator_epoch = other.coordinator_epoch

    def remember(self, sent: _Sent) -> None:
        recent = self.recent
        self.recent = (*(recent[1:] if len(recent) == BATCHES_KEPT else recent), sent)


class ProducerStates:
    """The idempotent and transactional producers of one log."""

    __slots__ = ("_ending", "_open", "_producers", "undecided")

    def __init__(self) -> None:
        self._producers: OrderedDict[int, _Producer] = (
            OrderedDict()
        )  # by their newest batch, the oldest first
        self._open: OrderedDict[int, _Producer] = OrderedDict()  # by the first offset of their transaction
        self._ending: deque[_Ending] = deque()  # in order of their markers
        self.undecided = 0
        """Transactions that are open, or whose marker `first_undecided` has not found visible yet."""

    def __repr__(self) -> str:
        return f"<ProducerStates of {len(self._producers)} producers>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStates):
            return NotImplemented
        return dict(self._producers) == dict(other._producers)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    @property
    def greatest_id(self) -> int:
        """The greatest producer id that is known; -1 if none is."""
        return max(self._producers, default=-1)

    def check(self, batch: Batch, *, any_sequence: bool = False) -> Duplicate | None:
        """Decide about a batch before its append: None to append it, or the one that it repeats.

        `any_sequence` says that the producer keeps its epoch from one transaction to the next, and may have
        been forgotten here in between: then its transaction may begin at any sequence. Raises BrokerError
        with INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if batch.producer_id < 0:
            return None
        if (known := self._producers.get(batch.producer_id)) is None:
            is_first = batch.attributes & _OF_TRANSACTIONS == TRANSACTIONAL_BIT and batch.base_sequence >= 0
            if is_first and not any_sequence:
                _check_sequence(batch, expected=0)
            return None
        if batch.producer_epoch < known.epoch:
            raise _old_epoch(batch.producer_id, batch.producer_epoch, known.epoch)
        if batch.base_sequence < 0:
            return None  # a marker, or a batch that the broker itself adds to a transaction
        if batch.producer_epoch > known.epoch:
            _check_sequence(batch, expected=0)
            return None
        if (sent := known.find(batch)) is not None:
            last_offset = Offset(sent.base_offset + sent.last_offset_delta)
            return Duplicate(Offset(sent.base_offset), last_offset, sent.timestamp_ms)
        if known.next_sequence != _ANY_SEQUENCE:
            _check_sequence(batch, expected=known.next_sequence)
        return None

    def check_marker(self, producer_id: int, producer_epoch: int, *, coordinator_epoch: int) -> None:
        """Raise BrokerError if a marker comes from an older epoch of the producer or of its coordinator."""
        known = self._producers.get(producer_id)
        if known is None:
            return
        if producer_epoch < known.epoch:
            raise _old_epoch(producer_id, producer_epoch, known.epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise BrokerError(
                f"the coordinator of producer {producer_id} is in epoch {known.coordinator_epoch}; "
                f"a marker came from epoch {coordinator_epoch}",
                code=ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    # ---- transactions

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        """The open transaction of a producer, if it has one here."""
        known = self._open.get(producer_id)
        return None if known is None else _transaction_of(known)

    def open_transactions(self) -> Iterator[tuple[int, OpenTransaction]]:
        """Every open transaction with its producer, the one that began first first."""
        return ((key, _transaction_of(known)) for key, known in self._open.items())

    @property
    def first_open(self) -> Offset | None:
        """The first offset of the oldest open transaction."""
        for known in self._open.values():
            return Offset(known.first_offset)
        return None

    def first_undecided(self, visible_end: int) -> Offset | None:
        """The first offset of the transactions that are open or whose marker is not below `visible_end`.

        Markers below are taken for visible from now on.
        """
        self.settle(visible_end)
        first = self.first_open
        for ending in self._ending:
            if first is None or ending.first_offset < first:
                first = Offset(ending.first_offset)
        return first

    def settle(self, visible_end: int = _NO_END) -> None:
        """Markers below `visible_end` are visible: their transactions are decided."""
        ending = self._ending
        while ending and ending[0].marker_offset < visible_end:
            ending.popleft()
            self.undecided -= 1

    def forget_trimmed(self, start: int) -> None:
        """Forget open transactions of which no batch is at or after `start`, where the log begins now.

        For a state from an older snapshot: markers that ended them may be among what was trimmed since. A
        batch at or after `start` opens its transaction again, and of the others nothing is left to read.
        """
        for key, known in list(self._open.items()):
            if known.last_offset < start:
                known.first_offset = known.started_ms = _NONE
                del self._open[key]
                self.undecided -= 1

    def standing(self, producer_id: int) -> Standing | None:
        """Where a producer stands; None if it is not known."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        return Standing(known.epoch, known.next_sequence, Offset(known.last_offset + 1))

    def describe(self) -> list[ProducerDescription]:
        """Every producer that is known, by id."""
        return [
            ProducerDescription(
                key,
                known.epoch,
                (known.next_sequence - 1) & _SEQUENCE_MASK if known.recent else _ANY_SEQUENCE,
                known.timestamp_ms,
                known.coordinator_epoch,
                known.first_offset,
            )
            for key, known in sorted(self._producers.items())
        ]

    def find_sequence(self, producer_id: int, sequence: int) -> SentRecord | None:
        """The record that a producer sent with this sequence, if its batch is still remembered."""
        known = self._producers.get(producer_id)
        if known is None:
            return None
        for sent in reversed(known.recent):
            delta = (sequence - sent.base_sequence) & _SEQUENCE_MASK
            if delta <= sent.last_offset_delta:
                return SentRecord(Offset(sent.base_offset + delta), sent.timestamp_ms)
        return None

    def apply(self, batch: Batch, *, keep_from: int = _NO_END) -> AbortedEntry | None:
        """Take note of an appended batch, its offset assigned; called at every append, in order.

        Returns the transaction that the batch aborted, if it did. Over PRODUCERS_MAX the oldest producer is
        forgotten, unless its newest batch ends at or after `keep_from`, which is where batches begin that are
        not durable.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        producers = self._producers
        known = producers.get(producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._begin_epoch(known, batch, keep_from)
        producers.move_to_end(producer_id)
        known.idle_since_ms = None
        sequence, delta, timestamp_ms = batch.base_sequence, batch.last_offset_delta, batch.max_timestamp
        known.last_offset = batch.base_offset + delta
        known.timestamp_ms = max(known.timestamp_ms, timestamp_ms)
        aborted = None
        if batch.attributes & _OF_TRANSACTIONS:
            aborted = self._apply_transaction(known, batch)
        if sequence >= 0 and known.epoch == batch.producer_epoch:
            known.remember(_Sent(sequence, delta, batch.base_offset, timestamp_ms))
            known.next_sequence = _sequence_after(sequence, delta)
        return aborted

    def _begin_epoch(self, known: _Producer | None, batch: Batch, keep_from: int) -> _Producer:
        """The state of a producer that is new or comes with another epoch than the one that is known."""
        if known is not None and batch.producer_epoch < known.epoch:
            return known
        producers, producer_id = self._producers, batch.producer_id
        fresh = _Producer(epoch=batch.producer_epoch, next_sequence=_ANY_SEQUENCE if known is None else 0)
        if known is not None:
            fresh.take_transaction(known)
        producers[producer_id] = fresh
        if fresh.first_offset >= 0:
            self._open[producer_id] = fresh  # in the place of the other one
        if len(producers) > PRODUCERS_MAX:
            self.forget_oldest(len(producers) - PRODUCERS_MAX, keep_from=keep_from)
        return fresh

    def _apply_transaction(self, known: _Producer, batch: Batch) -> AbortedEntry | None:
        """A batch of a transaction opens it, and a marker ends it."""
        if not batch.attributes & CONTROL_BIT:
            if known.first_offset < 0:
                known.first_offset, known.started_ms = batch.base_offset, batch.max_timestamp
                self._open[batch.producer_id] = known
                self.undecided += 1
            return None
        try:
            marker = read_marker(batch)
        except BatchError:
            return None  # not the marker of a transaction, or damaged: what is open stays undecided
        known.coordinator_epoch = max(known.coordinator_epoch, marker.coordinator_epoch)
        first = known.first_offset
        if first < 0:
            return None
        known.first_offset = known.started_ms = _NONE
        del self._open[batch.producer_id]
        self._ending.append(_Ending(first, batch.base_offset))
        if marker.commit:
            return None
        stable = self.first_open
        return AbortedEntry(
            producer_id=batch.producer_id,
            first_offset=first,
            marker_offset=batch.base_offset,
            stable_offset=batch.next_offset if stable is None else stable,
        )

    def reaches(self, offset: int) -> bool:
        """Whether anything applied ends at or after `offset`: then truncating there changes this state."""
        for newest in reversed(self._producers.values()):
            return newest.last_offset >= offset
        return False

    def forget_oldest(self, count: int, *, keep_from: int = _NO_END) -> int:
        """Forget up to `count` producers, the one with the oldest newest batch first; returns how many.

        A producer whose newest batch ends at or after `keep_from` is kept, and one whose transaction is open.
        """
        gone: list[int] = []
        for key, known in self._producers.items():
            if len(gone) >= count or known.last_offset >= keep_from:
                break
            if known.first_offset < 0:
                gone.append(key)
        for key in gone:
            del self._producers[key]
        return len(gone)

    def forget_idle(self, now_ms: int, *, idle_ms: int) -> int:
        """Forget who has sent nothing for so long; returns how many. To be called every now and then.

        A producer whose transaction is open is kept. Idle time counts from the first call that finds a
        producer quiet. The timestamps of its records do not tell: a producer may copy last year's records
        today.
        """
        gone = []
        for key, known in self._producers.items():
            if known.idle_since_ms is None:
                known.idle_since_ms = now_ms
            elif known.first_offset < 0 and now_ms - known.idle_since_ms >= idle_ms:
                gone.append(key)
        for key in gone:
            del self._producers[key]
        return len(gone)

    def clear(self) -> None:
        """Forget everything; for an owner who is about to replay."""
        self._producers.clear()
        self._open.clear()
        self._ending.clear()
        self.undecided = 0

    def copy(self) -> ProducerStates:
        """The same state, apart from this one's future."""
        twin = ProducerStates()
        twin._producers = OrderedDict((key, known.copy()) for key, known in self._producers.items())
        twin._open = OrderedDict((key, twin._producers[key]) for key in self._open)
        twin._ending = self._ending.copy()
        twin.undecided = self.undecided
        return twin

    @property
    def form(self) -> int:
        """The written form that holds this state: 1, or 2 where a producer has had a transaction."""
        return 2 if any(known.has_had_transaction for known in self._producers.values()) else 1

    def write(self, form: int = 1) -> bytes:
        """The bytes that `read` takes; equal states give equal bytes."""
        return b"".join(self.write_slices(form))

    def write_slices(self, form: int = 1) -> Iterator[bytes]:
        """The same in slices of less than a millisecond; nothing may be applied in between."""
        producers = sorted(self._producers.items())
        yield _COUNT.pack(len(producers))
        for first in range(0, len(producers), _PACKED_AT_ONCE):
            parts = []
            for key, known in producers[first : first + _PACKED_AT_ONCE]:
                place = (known.next_sequence, known.last_offset, known.timestamp_ms)
                parts.append(_PRODUCER.pack(key, known.epoch, *place, len(known.recent)))
                if form > 1:
                    transaction = (known.first_offset, known.started_ms, known.coordinator_epoch)
                    parts.append(_TRANSACTION.pack(*transaction))
                parts += [_BATCH.pack(*sent) for sent in known.recent]
            yield b"".join(parts)

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, form: int = 1) -> ProducerStates:
        """What `write` wrote; ValueError for anything else."""
        found = cls()
        try:
            position = found._read_producers(memoryview(data), form)
        except struct.error as error:
            raise ValueError(f"producer states end early, after {len(data)} bytes") from error
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes follow the last producer state")
        by_age = sorted(found._producers.items(), key=lambda item: item[1].last_offset)
        found._producers = OrderedDict(by_age)
        opened = [item for item in by_age if item[1].first_offset >= 0]
        found._open = OrderedDict(sorted(opened, key=lambda item: item[1].first_offset))
        found.undecided = len(opened)
        return found

    def _read_producers(self, data: memoryview, form: int) -> int:
        (count,) = _COUNT.unpack_from(data)
        position = _COUNT.size
        previous = -1
        for _ in range(count):  # a count that lies ends at the end of the data
            key, epoch, sequence, last_offset, timestamp_ms, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            if key <= previous or epoch < 0 or batches > BATCHES_KEPT:
                raise ValueError(f"producer {key} after {previous}, with epoch {epoch} and {batches} batches")
            known = _Producer(
                epoch=epoch, next_sequence=sequence, last_offset=last_offset, timestamp_ms=timestamp_ms
            )
            if form > 1:
                transaction = _TRANSACTION.unpack_from(data, position)
                known.first_offset, known.started_ms, known.coordinator_epoch = transaction
                position += _TRANSACTION.size
            for _ in range(batches):
                known.remember(_Sent(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            _check_read(key, known)
            self._producers[key] = known
            previous = key
        return position


def fair_limit(sizes: list[int], total_max: int) -> int:
    """The largest number such that the sum is within `total_max` if every size is cut to it."""
    left = total_max
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return total_max


def _transaction_of(known: _Producer) -> OpenTransaction:
    return OpenTransaction(known.epoch, Offset(known.first_offset), known.started_ms)


def _old_epoch(producer_id: int, epoch: int, newest: int) -> BrokerError:
    return BrokerError(
        f"producer {producer_id} sent epoch {epoch}, but is at {newest}",
        code=ErrorCode.INVALID_PRODUCER_EPOCH,
    )


def _sequence_after(base_sequence: int, delta: int) -> int:
    return (base_sequence + delta + 1) & _SEQUENCE_MASK


def _check_sequence(batch: Batch, *, expected: int) -> None:
    if batch.base_sequence != expected:
        raise BrokerError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence} where {expected} comes next",
            code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )


def _check_read(key: int, known: _Producer) -> None:
    """Refuse what `apply` can never have left."""
    next_offset = 0
    for sent in known.recent:
        if sent.base_sequence < 0 or sent.last_offset_delta < 0 or sent.base_offset < next_offset:
            raise ValueError(f"producer {key} has a batch out of place, below {next_offset}: {sent}")
        next_offset = sent.base_offset + sent.last_offset_delta + 1
    if known.first_offset > known.last_offset or min(known.first_offset, known.coordinator_epoch) < _NONE:
        raise ValueError(f"producer {key} has a transaction from {known.first_offset}, after its last batch")
    if known.last_offset < max(0, next_offset - 1):
        raise ValueError(f"producer {key} ends at {known.last_offset}, before its batches do")
    if known.recent:
        newest = known.recent[-1]
        plausible = known.next_sequence == _sequence_after(newest.base_sequence, newest.last_offset_delta)
    else:
        plausible = known.next_sequence in (_ANY_SEQUENCE, 0)
    if not plausible:
        raise ValueError(f"producer {key} goes on at sequence {known.next_sequence}, which its batches deny")
