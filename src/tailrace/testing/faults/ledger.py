"""What a directory must hold, from what its writer said.

A writer tells what it is about to change before it waits for it, and says so when that is durable. Per
partition, changes become durable in the order in which they were made. So after a crash a partition is as it
was after some number of them: at least those that were acknowledged, at most all of them, and never anything
else, byte for byte.

A report is a line of words:

    append PARTITION BASE NEXT DIGEST     a batch was handed to the log
    truncate PARTITION OFFSET             will be called next, as are the other three
    trim PARTITION OFFSET
    create PARTITION
    delete PARTITION
    refused PARTITION                     there is no space for an append; it will be tried again
    durable PARTITION COUNT               so many changes of this partition, since the start, are acknowledged
    found PARTITION START END BATCH ...   what was there after opening; a batch is BASE:NEXT:DIGEST
    opened                                every `found` was said
    failed MESSAGE                        the storage has ended itself, nothing will be acknowledged
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tailrace.records import Batch, iter_batches
from tailrace.storage.api import PartitionLog
from tailrace.storage.epochs import LeaderEpochs

_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A batch, by its place and the digest of all its bytes."""

    base_offset: int
    next_offset: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A log from its start to its durable end; the first batch may begin before the start."""

    start: int = 0
    end: int = 0
    batches: tuple[Held, ...] = ()

    def appended(self, batch: Held) -> State:
        return replace(self, end=batch.next_offset, batches=(*self.batches, batch))

    def truncated(self, offset: int) -> State:
        kept = tuple(batch for batch in self.batches if batch.next_offset <= offset)
        gone = self.batches[len(kept) :]
        end = min(offset, gone[0].base_offset) if gone else offset
        return replace(self, start=min(self.start, end), end=end, batches=kept)

    def trimmed(self, offset: int) -> State:
        kept = tuple(batch for batch in self.batches if batch.next_offset > offset)
        return replace(self, start=offset, batches=kept)


Found = State | None
"""What there is of a partition; None where it does not exist."""

Change = Callable[[Found], Found]


class Account:
    """One partition: what is acknowledged, and the changes that may or may not have happened after it."""

    def __init__(self) -> None:
        self.acknowledged: Found = None
        self.changes: list[Change] = []
        self.made = 0  # changes since the writer started
        self.durable = 0  # how many of them are acknowledged

    def add(self, change: Change) -> None:
        self.changes.append(change)
        self.made += 1

    def acknowledge(self, count: int) -> int:
        """The first `count` changes are durable; returns how many of them were not before."""
        fresh = count - self.durable
        assert self.durable <= count <= self.made, f"{count} after {self.durable} of {self.made}"
        for change in self.changes[:fresh]:
            self.acknowledged = change(self.acknowledged)
        del self.changes[:fresh]
        self.durable = count
        return fresh

    def possible(self) -> Iterator[Found]:
        """Every state that a crash may leave, the acknowledged one first."""
        state = self.acknowledged
        yield state
        for change in self.changes:
            state = change(state)
            yield state

    def adopt(self, found: Found) -> None:
        """It was seen so, and stays so."""
        self.acknowledged = found
        self.changes.clear()
        self.made = self.durable = 0


class Ledger:
    """All partitions of a directory, over all lives of its writer."""

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.acknowledged = 0  # changes, in all lives
        self.openings = 0
        self.refusals = 0
        self.failure: str | None = None  # why the writer of this life gave up
        self._found: dict[int, Found] = {}

    def account(self, partition: int) -> Account:
        return self.accounts.setdefault(partition, Account())

    def begin_life(self) -> None:
        """Another process opens the directory."""
        self.failure = None
        self._found = {}

    def observe(self, report: str) -> None:
        """Take note of a line; AssertionError if it tells of a loss."""
        kind, *words = report.split(" ")
        if kind == "found":
            self._found[int(words[0])] = _read_state(words[1:])
        elif kind == "opened":
            self.check(self._found)
            self.openings += 1
        elif kind == "failed":
            self.failure = " ".join(words)
        elif kind == "durable":
            assert self.failure is None, f"acknowledged after the storage failed: {report}"
            self.acknowledged += self.account(int(words[0])).acknowledge(int(words[1]))
        elif kind == "refused":
            self.refusals += 1
        else:
            self.account(int(words[0])).add(_change_of(kind, words[1:]))

    def check(self, found: dict[int, Found]) -> None:
        """Compare what is there with what may be, and expect it to stay."""
        for partition in sorted(self.accounts.keys() | found.keys()):
            account, state = self.account(partition), found.get(partition)
            assert state in account.possible(), _complaint(partition, account, state)
            account.adopt(state)

    def exact(self) -> bool:
        """Whether nothing is in doubt."""
        return not any(account.changes for account in self.accounts.values())


def _read_state(words: list[str]) -> State:
    batches = []
    for word in words[2:]:
        base, following, digest = word.split(":")
        batches.append(Held(base_offset=int(base), next_offset=int(following), digest=digest))
    return State(start=int(words[0]), end=int(words[1]), batches=tuple(batches))


def write_state(state: State) -> str:
    """The words of a `found` after the partition."""
    batches = (f"{batch.base_offset}:{batch.next_offset}:{batch.digest}" for batch in state.batches)
    return " ".join((str(state.start), str(state.end), *batches))


def _change_of(kind: str, words: list[str]) -> Change:
    if kind == "create":
        return lambda _: State()
    if kind == "delete":
        return lambda _: None
    if kind == "append":
        batch = Held(base_offset=int(words[0]), next_offset=int(words[1]), digest=words[2])
        return lambda found: _existing(found).appended(batch)
    offset = int(words[0])
    if kind == "truncate":
        return lambda found: _existing(found).truncated(offset)
    assert kind == "trim", f"no report begins with {kind!r}"
    return lambda found: _existing(found).trimmed(offset)


def _existing(found: Found) -> State:
    assert found is not None, "a partition was changed that does not exist"
    return found


def _complaint(partition: int, account: Account, found: Found) -> str:
    known, candidates = account.acknowledged, list(account.possible())
    lines = [f"partition {partition} is not as it was acknowledged, nor as it was at any moment after that"]
    for name, state in (("found", found), ("acknowledged", known), ("written last", candidates[-1])):
        shown = "nothing" if state is None else f"{state.start} to {state.end}, {len(state.batches)} batches"
        lines.append(f"  {name}: {shown}")
    if found is not None and known is not None:
        lines += _differences(found, candidates[-1] or known)
    return "\n".join(lines)


def _differences(found: State, wanted: State) -> list[str]:
    have = {batch.base_offset: batch for batch in found.batches}
    want = {batch.base_offset: batch for batch in wanted.batches}
    different = [base for base in sorted(have.keys() | want.keys()) if have.get(base) != want.get(base)]
    return [f"  at {base}: found {have.get(base)}, written {want.get(base)}" for base in different[:5]]


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Another sum than the one that the batch carries."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def held(batch: Batch) -> Held:
    return Held(base_offset=batch.base_offset, next_offset=batch.next_offset, digest=digest_of(batch.data))


async def read_batches(log: PartitionLog) -> list[Batch]:
    """Everything that a log holds."""
    batches: list[Batch] = []
    offset = log.start_offset
    while offset < log.durable_offset:
        piece = await log.read(offset, bytes_max=_READ_BYTES, up_to=log.durable_offset)
        assert piece.next_offset > offset, f"a read at {offset} goes on at {piece.next_offset}"
        batches += iter_batches(await piece.load())
        offset = piece.next_offset
    return batches


async def read_state(log: PartitionLog) -> State:
    """What a log holds, and its derived state compared with that."""
    batches = await read_batches(log)
    check_derived(log, batches)
    return State(start=log.start_offset, end=log.durable_offset, batches=tuple(map(held, batches)))


def check_derived(log: PartitionLog, batches: list[Batch]) -> None:
    """Epochs and producers are those that the batches tell of, and know no batch that is not there."""
    epochs = LeaderEpochs()
    newest: dict[int, Batch] = {}
    for batch in batches:
        epochs.apply(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            newest[batch.producer_id] = batch
    if batches:
        epochs.trim(log.start_offset)
        assert list(log.epochs) == list(epochs), f"epochs are {log.epochs}, the batches tell of {epochs}"
    for producer_id, batch in newest.items():
        known = log.producers.check(batch)
        assert known is not None, f"producer {producer_id} is not known by its batch at {batch.base_offset}"
        assert known[:2] == (batch.base_offset, batch.last_offset), f"{known} is not {batch}"
    end = log.durable_offset
    assert not log.producers.reaches(end), f"a producer is known by a batch past the end, {end}"
