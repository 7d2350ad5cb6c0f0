"""A history: lives of one data directory, the random work in each, and how each one ends.

Logs are read as clients read them: through a partition, which decides what is visible.
"""

from __future__ import annotations

import asyncio
import collections
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVarTuple, Unpack
from uuid import UUID

from tailrace.broker.configs import topic_settings
from tailrace.broker.counters import TopicCounters
from tailrace.broker.partition import Partition
from tailrace.broker.ports import PartitionRecord
from tailrace.model import BrokerError, BrokerId, Epoch, LogDamaged, Offset, PartitionId, StorageError
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import COMMIT, OS, Fsync, LogConfig
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keys_file import KEYS, KEYS_COPY, read_keys
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.checkpoint import read_checkpoint
from tailrace.storage.segment.entry import Append, Entry
from tailrace.storage.segment.names import CHECKPOINT, CHECKPOINT_COPY
from tailrace.storage.segment.rebuild import Rebuild
from tailrace.testing.crashes.ciphertexts import Ciphertexts
from tailrace.testing.crashes.forgery import forge_value, journal_ids
from tailrace.testing.crashes.oracle import Content, Oracle, Wrong, derived_state
from tailrace.testing.crashes.transactions import Transactions
from tailrace.testing.simulation import Crash, SimulatedClock, SimulatedDisk, SimulatedLoop

_Ts = TypeVarTuple("_Ts")

_NODE = BrokerId(1)
_JOURNAL_FILE = 16 * 1024
_LARGE = 900
_PARTITIONS_MAX = 3
_FORGERY_CHANCE = 0.06
_TRANSACTION_CHANCE = 0.6
_DAY_MS = 24 * 3600 * 1000
_SOON_CHANCE = 0.5
_SOON_CALLS = 30
_LOST_INDEXES_CHANCE = 0.2
_LOST_CHECKPOINT_CHANCE = 0.3
_REBUILD_CHANCE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What kind of history."""

    crashes: int | None = None  # 0: one life, that ends in good order
    crash_at: int | None = None  # disk call of the first life
    operations: int = 60
    faults: bool = True
    loose: bool = True  # some partitions do not wait for syncs
    flip: bool = False  # one bit, at the very end
    transactions: bool = False  # some batches belong to transactions
    encrypted: bool = False  # everything that is stored
    rebuild: bool = False  # both checkpoints are lost between some lives, and rebuilt
    storage: type[SegmentStorage] = SegmentStorage


@dataclass(frozen=True, slots=True)
class Failed:
    """A history that went wrong: its seed plays it again."""

    seed: int
    error: str
    trace: list[str]


def _encryption() -> Encryption:
    from tailrace.security.keys import KEY_BYTES, KeyEncryptionKey

    return Encryption(keys=(KeyEncryptionKey(bytes(range(KEY_BYTES))),))


class History:
    """One seed."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.rng = rng = random.Random(seed)
        self.trace: collections.deque[str] = collections.deque(maxlen=400)
        self.disk = SimulatedDisk(rng)
        self.disk.log = self._hear_call
        self.oracle = Oracle(
            is_loose=lambda partition_id: self._fsync(partition_id) is not None,
            is_compacted=self._is_compacted,
        )
        self._encryption = _encryption() if options.encrypted else None
        self.ciphertexts = Ciphertexts(rb"\d{8}\|%d\." % seed)
        self.transactions = Transactions(rng, self.oracle)
        self.counts: collections.Counter[str] = collections.Counter()
        self.loop: SimulatedLoop | None = None
        self._partitions: dict[SegmentLog, Partition] = {}  # of this life
        self.last_round: list[Entry] = []
        self.flipped = ""
        self._config = self._choose_config()
        self._unsynced_may_be_lost = False
        self._quarantined: set[PartitionId] = set()
        self._topics = 0
        self._sequences: dict[tuple[int, int], int] = {}
        self._bodies = 0
        self._crash_in = ""  # the next call that is written so
        self._known_ids: list[int] = []  # of the journal's files, as the last process left them
        self._tidy_often = rng.random() < 0.3
        if options.faults:
            self.disk.sync_error_chance = rng.choice([0, 0, 0.004, 0.02])
            self.disk.write_error_chance = rng.choice([0, 0, 0.01])

    def _choose_config(self) -> DirectoryConfig:
        rng = self.rng
        return DirectoryConfig(
            fsync=COMMIT,
            journal_file_bytes=_JOURNAL_FILE,
            journal_bytes_max=3 * _JOURNAL_FILE,
            checkpoint_bytes=_JOURNAL_FILE,
            checkpoint_interval_ms=rng.choice([5, 50, 5000]),
            round_bytes_max=4000,
            tail_bytes_max=rng.choice([0, 3000, 1 << 20]),
            inline_bytes_max=_LARGE,
            loose_inline_bytes_max=rng.choice([0, 300]),
            apply_bytes=rng.choice([1, 2000, 1 << 20]),
            apply_delay_ms=rng.choice([0, 2, 20]),
            sync_piece_bytes=3000,
            reserve_bytes=1000,
            free_bytes_min=0,
        )

    # ---- lives

    def play(self) -> None:
        """Live and die as often as the seed says; then recover twice, undisturbed."""
        rng, disk = self.rng, self.disk
        crashes = rng.choice([1, 2, 3, 5]) if self.options.crashes is None else self.options.crashes
        for number in range(crashes or 1):
            disk.crash_at = disk.calls + self._next_crash(number) if crashes else 0
            self._live(self._serve())
            self._crash_in = ""
            self._check_ciphertexts()
            self._die()
            if self.options.rebuild and rng.random() < _REBUILD_CHANCE:
                self._lose_checkpoint()
        disk.crash_at = 0
        disk.sync_error_chance = disk.write_error_chance = 0.0
        if self.options.flip:
            self._flip_bit()
        for _ in range(2):
            self._live(self._look())
            self._check_ciphertexts()
            disk.kill()
            self._unsynced_may_be_lost = False
            if not self.options.flip:
                self._damage_indexes()
        self.counts["histories"] += 1
        self.counts["calls"] += disk.calls
        self.counts["faults"] += disk.faults

    def _check_ciphertexts(self) -> None:
        """What lies on the disk now tells nothing. A power cut takes away what was read before."""
        if self._encryption is not None and not self.options.flip:
            self.ciphertexts.check(self.disk)
            self.counts["ciphertexts"] = len(self.ciphertexts)

    def _next_crash(self, number: int) -> int:
        if number == 0 and self.options.crash_at is not None:
            return self.options.crash_at
        ends = [300, 1000, 3000] if self._tidy_often else [30, 150, 700]
        return self.rng.randrange(1, self.rng.choice(ends))

    def _live(self, work: Coroutine[Any, Any, None]) -> None:
        started_s = self.loop.time() if self.loop is not None else 0.0
        self.loop = SimulatedLoop(started_s=started_s)
        faults = self.disk.faults
        try:
            self.loop.run(work)
        except (Crash, StorageError) as end:
            if isinstance(end, StorageError) and (self.disk.faults == faults or end.op == "serve"):
                raise  # no fault explains it: the second is what a bug in a background task ends as
        finally:
            self.loop.abandon()
        again = [
            p for p in self.disk.paths() if not p.endswith("/") and self.disk.synced(p).syncs_after_failure
        ]
        if again:
            raise Wrong(f"synced again after a failed sync: {again}")

    def _die(self) -> None:
        if self.disk.sync_failed or self.rng.random() < 0.35:
            self.counts["kills"] += 1
            self._unsynced_may_be_lost |= self.disk.sync_failed
            self.disk.kill()
        else:
            self.counts["power cuts"] += 1
            self._unsynced_may_be_lost = True
            self.disk.power_cut()
        if self.rng.random() < _LOST_INDEXES_CHANCE:
            self._damage_indexes()
        if self.rng.random() < _LOST_CHECKPOINT_CHANCE:
            self._damage_checkpoint()
        if self._encryption is not None and self.rng.random() < _LOST_CHECKPOINT_CHANCE:
            self._damage_keys()

    def _damage_indexes(self) -> None:
        """Between two lives some indexes come to harm. They are rebuildable: nothing must show of it.

        So are the lists of aborted transactions.
        """
        for path in self.disk.paths():
            content = self.disk.content(path) if path.endswith(("index", ".aborted")) else b""
            if content and self.rng.random() < 0.5:
                self.disk.flip_bit(path, position=self.rng.randrange(len(content)), bit=self.rng.randrange(8))
                self.counts["damaged indexes"] += 1

    def _damage_checkpoint(self) -> None:
        """One of the two checkpoints becomes unreadable. The other one is enough: nothing must show of it."""
        readable = [
            path
            for path in (CHECKPOINT, CHECKPOINT_COPY)
            if path in self.disk.paths() and read_checkpoint(memoryview(self.disk.content(path))) is not None
        ]
        if len(readable) == 2:
            self._flip_anywhere(self.rng.choice(readable))
            self.counts["damaged checkpoints"] += 1

    def _damage_keys(self) -> None:
        """One of the two files of keys comes to harm. The other one is enough."""
        wholes = [
            path
            for path in (KEYS, KEYS_COPY)
            if path in self.disk.paths()
            and (found := read_keys(self.disk.content(path))) is not None
            and not found.unreadable
        ]
        if len(wholes) == 2:
            self._flip_anywhere(self.rng.choice(wholes))
            self.counts["damaged keys"] += 1

    def _lose_checkpoint(self) -> None:
        """Both become unreadable, and are rebuilt, however often that is interrupted."""
        flips = [
            self._flip_anywhere(path) for path in (CHECKPOINT, CHECKPOINT_COPY) if path in self.disk.paths()
        ]
        attempts, rebuilt = 0, not flips
        self.oracle.is_rebuilt = True
        chances = self.disk.sync_error_chance, self.disk.write_error_chance
        while not rebuilt:
            attempts += 1
            disturbed = attempts < 4
            self.disk.crash_at = self.disk.calls + self.rng.randrange(1, 300) if disturbed else 0
            if not disturbed:
                self.disk.sync_error_chance = self.disk.write_error_chance = 0.0
            ended: list[str] = []
            self._live(self._rebuild(ended))
            rebuilt = bool(ended)
            if ended == ["refused"]:
                for path, position, bit in flips:
                    self.disk.flip_bit(path, position=position, bit=bit)
            self._die()
        self.disk.sync_error_chance, self.disk.write_error_chance = chances

    def _flip_anywhere(self, path: str) -> tuple[str, int, int]:
        place = path, self.rng.randrange(len(self.disk.content(path))), self.rng.randrange(8)
        self.disk.flip_bit(path, position=place[1], bit=place[2])
        return place

    async def _rebuild(self, ended: list[str]) -> None:
        """Says how it ended: rebuilt, by this run or by one that was interrupted at its end; or refused."""
        assert self.loop is not None
        rebuild = Rebuild(
            self.disk,
            "sim",
            config=self._config,
            clock=SimulatedClock(self.loop),
            rng=self.rng,
            encryption=self._encryption,
        )
        try:
            await rebuild.run()
        except StorageError as error:
            if "is whole" in error.reason or "ever stored" in error.reason:
                ended.append("rebuilt")
            elif "compacted" in error.reason and any(map(self._is_compacted, self.oracle.partitions)):
                self.counts["rebuilds refused"] += 1
                ended.append("refused")
            else:
                raise
        else:
            self.counts["rebuilds"] += 1
            ended.append("rebuilt")
        raise Crash("the rebuild is done")

    async def _open(self) -> SegmentStorage:
        assert self.loop is not None
        self._known_ids = journal_ids(self.disk)
        storage = self.options.storage(
            self.disk,
            "sim",
            config=self._config,
            clock=SimulatedClock(self.loop),
            rng=self.rng,
            encryption=self._encryption,
        )
        await storage.start()
        self._partitions = {log: self._open_partition(log) for log in storage.logs()}
        found = {log.partition_id: await _content(each) for log, each in self._partitions.items()}
        self.counts["recoveries"] += 1
        self._check_damage(storage)
        self._check_found(found)
        self.oracle.is_rebuilt = False
        self.oracle.adopt({log.life: log.partition_id for log in storage.directory.logs.values()})
        self._unsynced_may_be_lost = False
        for log in storage.logs():
            self._check_derived(log, found[log.partition_id])
            await self._check_transactions(log)
            storage.configure(log.partition_id, self._log_config(log.partition_id))
        names = await self.disk.list("")
        if any(name.startswith("stray-") for name in names) and not self.flipped:
            raise Wrong(f"strays: {names}")
        self._listen(storage)
        return storage

    def _open_partition(self, log: SegmentLog) -> Partition:
        """The partition that owns a log, and moves its watermark from now on."""
        assert self.loop is not None
        partition = Partition(
            f"topic-{log.partition_id.topic_id.int}",
            log.partition_id,
            PartitionRecord(
                index=log.partition_id.partition,
                leader=_NODE,
                leader_epoch=Epoch(self.disk.life),
                replicas=(_NODE,),
                isr=(_NODE,),
            ),
            node_id=_NODE,
            settings=topic_settings({}, {}),
            clock=SimulatedClock(self.loop),
            counters=TopicCounters(),
        )
        partition.open(log)
        return partition

    def _check_found(self, found: dict[PartitionId, Content]) -> None:
        """Everything acknowledged is there. A flip in the very last round cannot be told from a torn one."""
        try:
            self.oracle.check_recovered(found, losses=self._unsynced_may_be_lost)
        except Wrong:
            in_journal = self.flipped.startswith("journal/")
            if not in_journal or not self.oracle.last_round_lost(found, self.last_round):
                raise
            self.counts["flips cost the last round"] += 1
            self.oracle.check_recovered(found, losses=False)
        self.last_round = []

    def _check_damage(self, storage: SegmentStorage) -> None:
        """Nothing is quarantined without damage, but by a rebuild: it cuts nothing where it is not sure."""
        damaged = {log.partition_id for log in storage.logs() if log.damaged != -1}
        new = damaged - self._quarantined
        if new and not self.flipped and not self.oracle.is_rebuilt:
            raise Wrong(f"quarantined without damage: {new}")
        self.counts["quarantines"] += len(new)
        self._quarantined = damaged

    def _check_derived(self, log: SegmentLog, content: Content) -> None:
        if content.trimmed or content.start or self.flipped or self._is_compacted(log.partition_id):
            return
        epochs, producers, aborted = derived_state(content)
        if log.epochs != epochs or log.producers != producers:
            raise Wrong(f"{log}: derived state is {log.epochs}, {log.producers.write()!r}")
        if log.aborted_list != aborted or log.applied_aborted != aborted:
            raise Wrong(f"{log}: {list(log.aborted_list)} were aborted, and not {list(aborted)}")

    async def _check_transactions(self, log: SegmentLog) -> None:
        if self.flipped or log.damaged != -1:
            return
        self.transactions.check_recovered(log)
        await self.transactions.check_visible(self._partitions[log], log)

    def _listen(self, storage: SegmentStorage) -> None:
        """Have the oracle hear what is sequenced and what is acknowledged."""
        submit, push = storage.directory.submit, storage._applier.push

        def hear_submit(entry: Entry, size: int) -> None:
            self.oracle.sequenced(entry)
            submit(entry, size)

        def hear_push(lsn: int, entries: list[Entry], size: int) -> None:
            self.last_round = entries
            self.oracle.acknowledged(entries)
            push(lsn, entries, size)

        storage.directory.submit = hear_submit
        storage._applier.push = hear_push  # type: ignore[method-assign]

    async def _look(self) -> None:
        storage = await self._open()
        await storage.close()

    # ---- work

    async def _serve(self) -> None:
        storage = await self._open()
        works: dict[asyncio.Task[None], None] = {}
        busy: set[PartitionId] = set()
        for _ in range(self.options.operations * (3 if self._tidy_often else 1)):
            if storage.directory.failure is not None:
                raise storage.directory.failure
            work = self._choose_work(storage, busy)
            if work is not None:
                task = asyncio.ensure_future(work)
                works[task] = None
                task.add_done_callback(works.pop)
                task.add_done_callback(self._hear_end)
            if self.rng.random() < 0.6:
                await asyncio.sleep(self.rng.choice([0, 0, 0.0005, 0.002, 0.02]))
        await asyncio.sleep(self.rng.choice([0, 0.005, 0.5]))  # so that some see what they began come true
        for log in storage.logs():
            await self._check_served(log)
        if self.options.crashes == 0 or self.rng.random() < 0.3:
            await storage.close()
        raise Crash("the work is done")

    def _hear_end(self, task: asyncio.Task[None]) -> None:
        """Work that went wrong ends the life there and then: an error that nobody takes is lost otherwise."""
        assert self.loop is not None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.halt(error)

    def _choose_work(
        self, storage: SegmentStorage, busy: set[PartitionId]
    ) -> Coroutine[Any, Any, None] | None:
        rng = self.rng
        logs = [log for log in storage.logs() if not log.deleting]
        draw = rng.random()
        if not logs or draw < 0.06:
            return self._create(storage)
        log = rng.choice(logs)
        free = log.partition_id not in busy
        if draw < (0.07 if self._tidy_often else 0.13) and free:
            back = rng.randint(0, 3) if rng.random() < 0.6 else rng.randint(0, log.end_offset)
            offset = max(log.start_offset, log.end_offset - back)
            return self._alone(log, busy, self._replace_end, log, Offset(offset))
        if draw < 0.17 and free:
            offset = rng.randint(log.start_offset, rng.choice([log.start_offset, log.durable_offset]))
            return self._alone(log, busy, log.trim, Offset(offset))
        if draw < 0.19 and free:
            return self._alone(log, busy, self._delete, storage, log.partition_id)
        if draw < 0.22:
            return self._quietly(storage.checkpoint)
        if draw < 0.25:
            return self._quietly(storage.maintain)
        if draw < 0.28:
            return self._check_served(log)
        if draw < 0.40 and self._tidy_often:
            return self._tidy(storage)
        for _ in range(rng.choice([1, 1, 1, 4, 8 if self._tidy_often else 1])):
            self._append(log)
        return None

    async def _replace_end(self, log: SegmentLog, offset: Offset) -> None:
        """Truncate and, as a follower does, append something else at once: often more than was there."""
        self.transactions.begin_cut(log)
        await log.truncate(offset)
        self.transactions.end_cut(log)
        for _ in range(self.rng.choice([0, 1, 3, 6])):
            self._append(log)
        self._crash_soon(" sync ")

    async def _delete(self, storage: SegmentStorage, partition_id: PartitionId) -> None:
        """Delete, and often have a checkpoint forget the partition at once."""
        await storage.delete(partition_id)
        if self.rng.random() < 0.5:
            await storage.wait_applied()
        self._crash_soon(*[" sync directory /"] * 4)
        if self.rng.random() < 0.9:
            await storage.checkpoint()

    def _crash_soon(self, *calls: str) -> None:
        """What is rare is where a crash tells most: let some come right behind it, or just before a sync."""
        disk = self.disk
        if self.options.crash_at is None and disk.crash_at and self.rng.random() < _SOON_CHANCE:
            self._crash_in = self.rng.choice(["", *calls])
            if not self._crash_in:
                disk.crash_at = min(disk.crash_at, disk.calls + self.rng.randrange(1, _SOON_CALLS))

    def _hear_call(self, call: str) -> None:
        self.trace.append(call)
        if self._crash_in and self._crash_in in call:
            self.disk.crash_at = self.disk.calls

    async def _tidy(self, storage: SegmentStorage) -> None:
        """Compaction finds something to do only below a checkpoint."""
        await self._quietly(storage.checkpoint)
        await self._quietly(storage.maintain)

    async def _create(self, storage: SegmentStorage) -> None:
        wanted = {log.partition_id for log in storage.directory.logs.values() if not log.deleting}
        if len(wanted) >= _PARTITIONS_MAX:
            return
        gone = [pid for pid in self.oracle.partitions if pid not in wanted]
        if gone and self.rng.random() < 0.6:
            partition_id = self.rng.choice(gone)
        else:
            self._topics += 1
            partition_id = PartitionId(UUID(int=self._topics), 0)
        await self._quietly(self._create_log, storage, partition_id)

    async def _create_log(self, storage: SegmentStorage, partition_id: PartitionId) -> None:
        log = await storage.create(partition_id, self._log_config(partition_id))
        self._partitions[log] = self._open_partition(log)

    def _log_config(self, partition_id: PartitionId) -> LogConfig:
        return LogConfig(
            fsync=self._fsync(partition_id),
            segment_bytes=1500 if self._tidy_often else 4000,
            index_interval_bytes=400,
            compact=self._is_compacted(partition_id),
            delete=not self._is_compacted(partition_id),
            delete_retention_ms=0 if self.options.transactions else _DAY_MS,
        )

    def _is_compacted(self, partition_id: PartitionId) -> bool:
        return self._tidy_often or partition_id.topic_id.int % 5 == 1

    def _fsync(self, partition_id: PartitionId) -> Fsync | None:
        kind = partition_id.topic_id.int % 4 if self.options.loose else 0
        return {2: OS, 3: Fsync(5)}.get(kind)

    def _append(self, log: SegmentLog) -> None:
        rng = self.rng
        self._bodies += 1
        if self.options.transactions and rng.random() < _TRANSACTION_CHANCE:
            self._append_to_transaction(log)
            return
        producer_id = rng.choice([-1, -1, 0, 1])
        sequence = self._sequences.get((log.life, producer_id), 0) if producer_id >= 0 else -1
        self._sequences[log.life, producer_id] = sequence + 1
        timestamp_ms, key = self._bodies * 10 - rng.randrange(50), b"k%d" % rng.randrange(5)
        copies = rng.choice([1, 1, 2])

        def build(value: bytes) -> bytearray:
            return build_batch(
                [(timestamp_ms, key, value, ())] * copies,
                producer_id=producer_id,
                producer_epoch=min(producer_id, 0),
                base_sequence=sequence,
            )

        if self._known_ids and copies == 1 and rng.random() < _FORGERY_CHANCE:
            value = forge_value(rng.choice(self._known_ids), build)
        else:
            value = self._value()
        try:
            log.append(read_batch(build(value)), leader_epoch=Epoch(self.disk.life))
        except (BrokerError, StorageError):
            self.counts["refused appends"] += 1

    def _append_to_transaction(self, log: SegmentLog) -> None:
        epoch, key = Epoch(self.disk.life), b"k%d" % self.rng.randrange(5)
        try:
            self.transactions.append(log, epoch, key=key, value=self._value())
        except (BrokerError, StorageError):
            self.counts["refused appends"] += 1
        else:
            self.counts["batches of transactions"] += 1

    def _value(self) -> bytes:
        rng = self.rng
        size = rng.randrange(_LARGE, 2200) if rng.random() < 0.25 else rng.randrange(1, 500)
        text = b"%08d|%d." % (self._bodies, self.seed)
        return (text * (size // len(text) + 1))[:size]

    async def _alone(
        self,
        log: SegmentLog,
        busy: set[PartitionId],
        work: Callable[[Unpack[_Ts]], Awaitable[Any]],
        *args: *_Ts,
    ) -> None:
        busy.add(log.partition_id)
        try:
            await self._quietly(work, *args)
        finally:
            busy.discard(log.partition_id)

    async def _quietly(self, work: Callable[[Unpack[_Ts]], Awaitable[Any]], *args: *_Ts) -> None:
        """Work that may be refused, or may find the directory fenced."""
        try:
            await work(*args)
        except LogDamaged as error:
            if not self._quarantined:
                raise Wrong(f"damage where there is none: {error}") from error
            self.counts["refused operations"] += 1
        except (BrokerError, StorageError):
            self.counts["refused operations"] += 1

    async def _check_served(self, log: SegmentLog) -> None:
        """What is read while others write is what was acknowledged."""
        partition = self._partitions.get(log)
        if partition is None or log.deleting:
            return  # not known to its creator yet; or about to go, and perhaps created anew meanwhile
        expected = self.oracle.partitions[log.partition_id]
        wanted = next(iter(expected.states()))
        unsettled = expected.acknowledged  # entries from here on may come true while it is read
        if log.uncleanable:
            raise Wrong(f"{log}: compaction set {log.uncleanable} aside as damaged")
        if wanted is not None and partition.high_watermark > wanted.end:
            raise Wrong(f"{partition} shows up to {partition.high_watermark}: only {wanted.end} is durable")
        try:
            if self.options.transactions:
                await self.transactions.check_visible(partition, log)
            content = await _content(partition)
        except LogDamaged as error:
            raise Wrong(f"damage where there is none: {error}") from error
        except (BrokerError, StorageError):
            self.counts["refused reads"] += 1
            return
        if wanted is None or any(not isinstance(entry, Append) for entry in expected.entries[unsettled:]):
            return
        self.counts["served and checked"] += 1
        self.oracle.check_served(log.partition_id, wanted, content, start=log.start_offset)

    # ---- the last bit

    def _flip_bit(self) -> None:
        rng = self.rng
        paths = [p for p in self.disk.paths() if not p.endswith("/") and not p.startswith("deleted-")]
        paths = [path for path in paths if self.disk.content(path) and not path.endswith(".tmp")]
        if not paths:
            return
        path = rng.choice(paths)
        content = self.disk.content(path)
        used = [place for place, byte in enumerate(content) if byte] if path.startswith("journal/") else []
        place = rng.choice(used) if used and rng.random() < 0.9 else rng.randrange(len(content))
        self.disk.flip_bit(path, position=place, bit=rng.randrange(8))
        self.flipped = path


async def _content(partition: Partition) -> Content:
    """Everything that a reader can get out of a partition."""
    start = partition.start_offset
    offset, end, batches = start, partition.high_watermark, {}
    while offset < min(end, partition.high_watermark):  # which a truncation may bring back meanwhile
        piece = await partition.read(offset, bytes_max=1500)
        if piece.next_offset <= offset < partition.high_watermark:
            raise Wrong(f"{partition}: a read at {offset} leads nowhere")
        for batch in iter_batches(await piece.load()):
            batches[int(batch.base_offset)] = bytes(batch.data)
        offset = piece.next_offset
    return Content(start, end, batches)


def play(seed: int, options: Options | None = None) -> tuple[History, Failed | None]:
    """Play one history; what went wrong, if anything did."""
    history = History(seed, options or Options())
    try:
        history.play()
    except Wrong as wrong:
        return history, Failed(seed, f"Wrong: {wrong}", list(history.trace))
    except Exception:
        return history, Failed(seed, traceback.format_exc(), list(history.trace))
    return history, None


def play_flipped(seed: int, options: Options | None = None) -> tuple[History, Failed | None]:
    """A history that ends with one bit flipped: masked, reported, or at most the last round lost."""
    history = History(seed, options or Options(faults=False, loose=False, flip=True))
    try:
        history.play()
    except (BrokerError, StorageError):
        history.counts["flips reported"] += 1
    except Wrong as wrong:
        return history, Failed(seed, f"Wrong: {wrong} (flipped {history.flipped})", list(history.trace))
    except Exception:
        return history, Failed(seed, traceback.format_exc(), list(history.trace))
    else:
        history.counts["flips masked"] += 1
    return history, None


def sweep(seed: int, *, until: float, options: Options | None = None) -> tuple[int, Failed | None]:
    """One history, crashed at every disk call in turn; how many were played, and what went wrong."""
    given = options or Options()
    for call in range(1, 400):
        swept = Options(
            crashes=1 + call % 2,
            crash_at=call,
            operations=15,
            faults=given.faults,
            loose=given.loose,
            transactions=given.transactions,
            encrypted=given.encrypted,
            storage=given.storage,
        )
        _, failed = play(seed, swept)
        if failed is not None:
            return call, Failed(seed, f"crash_at={call} {failed.error}", failed.trace)
        if time.monotonic() > until:
            return call, None
    return 399, None
