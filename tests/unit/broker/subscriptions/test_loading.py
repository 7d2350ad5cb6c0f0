"""Loading of subscriptions and cursors: by example, and random histories with compaction and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.internal.memory_log import MemoryLog

from tailrace.broker.subscriptions.codec import write_cursor_key, write_delta, write_snapshot
from tailrace.broker.subscriptions.journal import (
    CursorRecords,
    acks_record,
    acks_tombstone,
    definition_record,
    definition_tombstone,
)
from tailrace.broker.subscriptions.loading import LoadedCursors, load_cursors, merge
from tailrace.broker.subscriptions.stored import (
    AcksKey,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredAcks,
    StoredSubscription,
)
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord, build_batch

BILLING = StoredSubscription(
    name="billing", topic="orders", topic_id=UUID(int=7), settings={"mode": "shared"}, created_ms=1
)
DEFINED = definition_record(BILLING, time_ms=0)
KEYS = [CursorKey("billing", UUID(int=7), partition) for partition in (0, 1)]
KEY = KEYS[0]


def load(records: Sequence[NewRecord], *, batch_records: int = 3) -> LoadedCursors:
    log = MemoryLog()
    log.batches[0] = [
        bytes(build_batch(records[start : start + batch_records]))
        for start in range(0, len(records), batch_records)
    ]
    return asyncio.run(load_cursors(log, 0))


def delta(version: int, position: int, *ranges: tuple[int, int], **failures: int) -> NewRecord:
    """A delta in the slot where a cursor that never needed another snapshot has it; failures as _5=1."""
    counts = {int(name[1:]): times for name, times in failures.items()}
    value = write_delta(CursorDelta(position=position, ranges=ranges, failures=counts), version=version)
    return 0, write_cursor_key(KEY) + bytes((version % 16,)), value, ()


def snapshot(version: int, position: int, *ranges: tuple[int, int]) -> NewRecord:
    value = write_snapshot(CursorSnapshot(version=version, epoch=2, position=position, ranges=ranges))
    return 0, write_cursor_key(KEY) + b"\x00", value, ()


# By example


def test_an_empty_partition_has_nothing() -> None:
    loaded = load([])
    assert (loaded.definitions, loaded.cursors, loaded.orphans, loaded.malformed) == ({}, {}, [], 0)


def test_a_subscription_without_progress_is_there() -> None:
    loaded = load([DEFINED])
    assert loaded.definitions == {"billing": BILLING}
    assert loaded.cursors == {}


def test_the_newest_definition_counts_and_a_tombstone_ends_it() -> None:
    changed = replace(BILLING, settings={"mode": "exclusive"})
    records = [DEFINED, definition_record(changed, time_ms=1)]
    assert load(records).definitions == {"billing": changed}
    assert load([*records, definition_tombstone("billing", time_ms=2)]).definitions == {}


def test_deltas_go_on_top_of_the_snapshot_and_join() -> None:
    records = [DEFINED, snapshot(16, 5, (8, 9)), delta(17, 5, (6, 8)), delta(18, 6)]
    expected = CursorSnapshot(version=18, epoch=2, position=9)
    assert load(records).cursors == {KEY: expected}


def test_deltas_from_before_the_snapshot_say_nothing() -> None:
    records = [DEFINED, delta(14, 0, (90, 95), _96=3), snapshot(16, 5)]
    assert load(records).cursors == {KEY: CursorSnapshot(version=16, epoch=2, position=5)}


def test_deltas_without_a_snapshot_start_from_nothing() -> None:
    records = [DEFINED, delta(1, 0, (3, 4)), delta(2, 1, _2=1)]
    expected = CursorSnapshot(version=2, epoch=0, position=1, ranges=((3, 4),), failures={2: 1})
    assert load(records).cursors == {KEY: expected}


def test_deltas_apply_in_the_order_of_their_versions_wherever_they_lie() -> None:
    records = [DEFINED, delta(3, 0, _5=3), delta(1, 0, _5=1), delta(2, 0, _5=2)]
    assert load(records).cursors[KEY].failures == {5: 3}


def test_failures_of_what_is_done_or_taken_back_are_gone() -> None:
    records = [DEFINED, delta(1, 0, _1=1, _4=1, _6=1, _7=2), delta(2, 2, (4, 5), _6=0)]
    assert load(records).cursors[KEY].failures == {7: 2}


def test_the_limit_of_redriven_dead_letters_comes_back() -> None:
    writes = CursorRecords(KEY)
    writes.need_snapshot()
    stored = CursorSnapshot(version=1, epoch=0, position=4, limit=12)
    record = writes.record(CursorDelta(position=4, ranges=(), failures={}), lambda _: stored, time_ms=0)
    assert load([DEFINED, record]).cursors == {KEY: stored}


def test_cursors_of_a_deleted_subscription_are_dropped_and_named() -> None:
    records = [DEFINED, snapshot(16, 5), definition_tombstone("billing", time_ms=0)]
    loaded = load(records)
    assert loaded.cursors == {}
    assert loaded.orphans == [KEY]
    cleaned = load([*records, *CursorRecords(KEY).tombstones(0), DEFINED])
    assert (cleaned.cursors, cleaned.orphans) == ({}, [])


def test_a_deletion_cut_short_leaves_no_progress_that_counts() -> None:
    gone = [definition_tombstone("billing", time_ms=0), *CursorRecords(KEY).tombstones(0)]
    records = [DEFINED, snapshot(16, 5), *(delta(version, 6) for version in range(17, 32))]
    for cut in range(1, len(gone)):
        loaded = load([*records, *gone[:cut]])
        assert loaded.cursors == {}
        assert loaded.orphans == [KEY]
    assert load([*records, *gone]).orphans == []


def test_subscriptions_do_not_mix() -> None:
    other = replace(BILLING, name="audit")
    mail = CursorRecords(CursorKey("audit", UUID(int=7), 0))
    step = CursorDelta(position=9, ranges=(), failures={})
    record = mail.record(step, lambda _: pytest.fail("no snapshot is due"), time_ms=0)
    loaded = load([DEFINED, delta(1, 3), definition_record(other, time_ms=0), record])
    assert loaded.definitions == {"billing": BILLING, "audit": other}
    assert {key: cursor.position for key, cursor in loaded.cursors.items()} == {KEY: 3, mail.key: 9}


# Records that make no sense


@pytest.mark.parametrize(
    "strange",
    [
        (0, None, b"v", ()),
        (0, b"", b"v", ()),
        (0, b"\x00what", b"v", ()),
        (0, b"\x01\x00\x03odd", b"\x01", ()),  # a definition that is cut off
        (0, write_cursor_key(KEYS[1]) + b"\x00", b"\x09", ()),  # a snapshot of another format
        (0, write_cursor_key(KEYS[1]) + b"\x05", b"\x01\x02", ()),
    ],
)
def test_a_strange_record_is_counted_and_keeps_nobody_else_from_his_progress(strange: NewRecord) -> None:
    loaded = load([DEFINED, strange, delta(1, 3)])
    assert loaded.malformed == 1
    assert loaded.definitions == {"billing": BILLING}
    assert loaded.cursors[KEY].position == 3


def test_a_record_of_a_later_kind_is_passed_over_in_silence() -> None:
    loaded = load([DEFINED, (0, b"\x05new", b"v", ()), delta(1, 3)])
    assert loaded.malformed == 0
    assert loaded.cursors[KEY].position == 3


def test_what_claims_to_be_of_a_transaction_never_took_effect() -> None:
    log = MemoryLog()
    claimed = build_batch([delta(2, 9)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.batches[0] = [bytes(build_batch([DEFINED, delta(1, 3)])), bytes(claimed)]
    assert asyncio.run(load_cursors(log, 0)).cursors[KEY].position == 3


def test_a_log_that_cannot_be_read_is_not_an_empty_one() -> None:
    log = MemoryLog()
    log.batches[0] = [bytes(build_batch([DEFINED]))]
    log.read_error = BrokerError("damaged", code=ErrorCode.CORRUPT_MESSAGE)
    with pytest.raises(BrokerError):
        asyncio.run(load_cursors(log, 0))


def test_others_get_their_turn_while_one_large_batch_is_read() -> None:
    async def scenario() -> int:
        log = MemoryLog()
        log.batches[0] = [bytes(build_batch([delta(version, version) for version in range(1, 5001)]))]
        loading = asyncio.get_running_loop().create_task(load_cursors(log, 0))
        turns = 0
        while not loading.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await loading).records == 5000
        return turns

    assert asyncio.run(scenario()) > 20


# Random histories


@dataclass
class Progress:
    """A cursor as a person would keep it: a set of what is done."""

    version: int = 0
    epoch: int = 0
    base: int = 0  # everything below is done
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    limit: int | None = None

    @property
    def position(self) -> int:
        position = self.base
        while position in self.done:
            position += 1
        return position

    def snapshot(self, version: int) -> CursorSnapshot:
        return CursorSnapshot(
            version=version,
            epoch=self.epoch,
            position=self.position,
            ranges=tuple(_runs({offset for offset in self.done if offset > self.position})),
            failures=dict(self.failures),
            limit=self.limit,
        )

    def ack(self, start: int, end: int) -> CursorDelta:
        new = {offset for offset in range(start, end) if offset >= self.base} - self.done
        self.done |= new
        changed = {offset: 0 for offset in new if self.failures.pop(offset, 0)}
        return CursorDelta(position=self.position, ranges=_runs(new), failures=changed)

    def fail(self, offset: int) -> CursorDelta:
        changed = {}
        if offset >= self.base and offset not in self.done:
            changed[offset] = self.failures[offset] = self.failures.get(offset, 0) + 1
        return CursorDelta(position=self.position, ranges=(), failures=changed)

    def seek(self, position: int) -> CursorDelta:
        self.epoch, self.base, self.done, self.failures = self.epoch + 1, position, set(), {}
        return CursorDelta(position=position, ranges=(), failures={})


def _runs(offsets: set[int]) -> list[tuple[int, int]]:
    starts = [offset for offset in sorted(offsets) if offset - 1 not in offsets]
    ends = [offset + 1 for offset in sorted(offsets) if offset + 1 not in offsets]
    return list(zip(starts, ends, strict=True))


class World:
    """A log, who writes to it, and what must be found in it at every place where it may end."""

    def __init__(self) -> None:
        self.log: list[NewRecord] = [DEFINED]
        self.durable = 1  # nothing below is lost in a crash
        self.truth: list[tuple[int, dict[CursorKey, CursorSnapshot]]] = [(1, {})]  # (end of log, cursors)
        self.progress = [Progress() for _ in KEYS]
        self.writers = [CursorRecords(key) for key in KEYS]

    def write(self, which: int, delta: CursorDelta, *, fate: str) -> None:
        progress, writer = self.progress[which], self.writers[which]
        record = writer.record(delta, progress.snapshot, time_ms=0)
        progress.version = writer.version
        if fate != "lost":
            self.log.append(record)
            state = progress.snapshot(writer.version)
            self.truth.append((len(self.log), self.truth[-1][1] | {KEYS[which]: state}))
        if fate != "stored":
            writer.need_snapshot()  # he does not know whether it is there

    def compact(self, end: int, *, forget: bool) -> None:
        """The first `end` records become the newest of every key; with `forget` tombstones go as well."""
        end = max(place for place, _ in self.truth if place <= max(end, self.durable))  # batches are whole
        newest = {record[1]: index for index, record in enumerate(self.log[:end])}
        kept = [
            record
            for index, record in enumerate(self.log[:end])
            if newest[record[1]] == index and not (forget and record[2] is None)
        ]
        shift = end - len(kept)
        settled = [cursors for place, cursors in self.truth if place <= end][-1]
        later = [(place - shift, cursors) for place, cursors in self.truth if place > end]
        self.log[:end] = kept
        self.durable = len(kept)
        self.truth = [(len(kept), settled), *later]

    def crash(self, lose: int) -> None:
        """The end of the log is lost, and somebody starts anew with what is left."""
        self.truth = self.truth[: max(len(self.truth) - lose, 1)]
        end, cursors = self.truth[-1]
        del self.log[end:]
        self.durable = end
        loaded = load(self.log).cursors
        assert loaded == cursors
        for which, key in enumerate(KEYS):
            found = loaded.get(key, CursorSnapshot(version=0, epoch=0, position=0))
            self.writers[which] = CursorRecords(key, version=found.version)
            self.progress[which] = Progress(
                version=found.version,
                epoch=found.epoch,
                base=found.position,
                done={offset for start, end in found.ranges for offset in range(start, end)},
                failures=dict(found.failures),
                limit=found.limit,
            )

    def remake(self) -> None:
        """The subscription is deleted, and made again under the same name."""
        self.log.append(definition_tombstone("billing", time_ms=0))
        for which, key in enumerate(KEYS):
            self.log.extend(self.writers[which].tombstones(0))
            self.writers[which], self.progress[which] = CursorRecords(key), Progress()
        self.log.append(DEFINED)
        self.truth.append((len(self.log), {}))

    def check(self) -> None:
        for end, cursors in self.truth:
            assert load(self.log[:end]).cursors == cursors


WHICH = st.integers(0, len(KEYS) - 1)
OFFSET = st.integers(0, 30)
FATE = st.sampled_from(["stored", "stored", "stored", "stored", "lost", "told lost but there"])
STEPS = st.one_of(
    st.tuples(st.just("ack"), WHICH, OFFSET, st.integers(1, 3), FATE),
    st.tuples(st.just("ack"), WHICH, OFFSET, st.integers(1, 3), FATE),
    st.tuples(st.just("fail"), WHICH, OFFSET, st.just(0), FATE),
    st.tuples(st.just("seek"), WHICH, OFFSET, st.just(0), FATE),
    st.tuples(st.just("redrive"), WHICH, OFFSET, st.just(0), FATE),
    st.tuples(st.just("compact"), st.integers(0, 1), st.integers(0, 100), st.just(0), FATE),
    st.tuples(st.just("crash"), st.just(0), st.integers(0, 20), st.just(0), FATE),
    st.tuples(st.just("remake"), st.just(0), st.just(0), st.just(0), FATE),
)


def _take_step(world: World, step: tuple[str, int, int, int, str]) -> None:
    verb, which, number, length, fate = step
    progress = world.progress[which]
    if verb == "ack":
        world.write(which, progress.ack(number, number + length), fate=fate)
    elif verb == "fail":
        world.write(which, progress.fail(number), fate=fate)
    elif verb == "seek":
        world.writers[which].need_snapshot()
        world.write(which, progress.seek(number), fate=fate)
    elif verb == "redrive":
        world.writers[which].need_snapshot()
        progress.limit = number
        still = CursorDelta(position=progress.position, ranges=(), failures={})
        world.write(which, still, fate=fate)
    elif verb == "compact":
        world.compact(len(world.log) * number // 100, forget=bool(which))
    elif verb == "crash":
        world.crash(number)
    else:
        world.remake()


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_loading_gives_the_state_of_the_last_write_that_survived(
    steps: list[tuple[str, int, int, int, str]],
) -> None:
    world = World()
    for step in steps:
        _take_step(world, step)
    world.check()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(OFFSET, st.integers(1, 3)), min_size=33, max_size=80),
    st.integers(0, 100),
    st.booleans(),
)
def test_several_rounds_of_slots_survive_compaction_anywhere(
    acks: list[tuple[int, int]], share: int, forget: bool
) -> None:
    world = World()
    for start, length in acks:
        world.write(0, world.progress[0].ack(start, start + length), fate="stored")
    world.compact(len(world.log) * share // 100, forget=forget)
    world.check()


def test_merging_nothing_changes_nothing() -> None:
    stored = CursorSnapshot(version=3, epoch=1, position=4, ranges=((6, 8),), failures={5: 1}, limit=9)
    assert merge(stored, []) == stored


# Acknowledgements of transactions


def acked(producer_id: int, *ranges: tuple[int, int], epoch: int = 2, key: CursorKey = KEY) -> NewRecord:
    stored = StoredAcks(epoch=epoch, ranges=ranges)
    return acks_record(AcksKey(key, producer_id, 0), stored, time_ms=0)


class Log(MemoryLog):
    """A log that a test fills batch by batch."""

    def plain(self, *records: NewRecord) -> None:
        self.sequence(0, records)

    def transactional(self, producer_id: int, *records: NewRecord) -> None:
        self.sequence_transactional(0, records, producer_id=producer_id, producer_epoch=0)

    def load(self) -> LoadedCursors:
        return asyncio.run(load_cursors(self, 0))


def test_acknowledgements_count_once_their_transaction_has_committed() -> None:
    log = Log()
    log.plain(DEFINED, snapshot(16, 5))
    log.transactional(1, acked(1, (5, 6), (8, 9)))
    log.transactional(2, acked(2, (6, 7)))
    loaded = log.load()
    assert loaded.cursors == {KEY: CursorSnapshot(version=16, epoch=2, position=5)}
    assert {key.producer_id: acks.ranges for key, acks in loaded.undecided.items()} == {
        1: ((5, 6), (8, 9)),
        2: ((6, 7),),
    }
    log.mark(0, 2, commit=False)
    log.mark(0, 1, commit=True)
    loaded = log.load()
    assert loaded.cursors == {KEY: CursorSnapshot(version=16, epoch=2, position=6, ranges=((8, 9),))}
    assert loaded.committed == {KEY: [AcksKey(KEY, 1, 0)]}
    assert (loaded.undecided, loaded.malformed) == ({}, 0)


def test_acknowledgements_from_before_a_seek_are_void_and_named() -> None:
    log = Log()
    log.plain(DEFINED, snapshot(16, 5))
    log.transactional(1, acked(1, (5, 6), epoch=1))
    log.mark(0, 1, commit=True)
    loaded = log.load()
    assert loaded.cursors[KEY].position == 5
    assert loaded.committed == {KEY: [AcksKey(KEY, 1, 0)]}


@pytest.mark.parametrize("decided", [True, False])
def test_a_tombstone_takes_acknowledgements_away_before_and_after_the_marker(decided: bool) -> None:
    log = Log()
    log.plain(DEFINED, snapshot(16, 5))
    log.transactional(1, acked(1, (5, 6)))
    if decided:
        log.mark(0, 1, commit=True)
    log.plain(acks_tombstone(AcksKey(KEY, 1, 0), time_ms=0))
    log.mark(0, 1, commit=True)
    loaded = log.load()
    assert (loaded.cursors[KEY].position, loaded.committed, loaded.undecided) == (5, {}, {})


def test_acknowledgements_without_a_subscription_are_named_for_their_tombstones() -> None:
    log = Log()
    log.transactional(1, acked(1, (5, 6)))
    log.mark(0, 1, commit=True)
    log.transactional(2, acked(2, (5, 6)))
    loaded = log.load()
    assert loaded.orphan_acks == [AcksKey(KEY, 1, 0), AcksKey(KEY, 2, 0)] or loaded.orphan_acks == [
        AcksKey(KEY, 2, 0),
        AcksKey(KEY, 1, 0),
    ]
    assert loaded.undecided == {}


def test_anything_else_in_a_transaction_is_passed_over_and_counted() -> None:
    log = Log()
    log.plain(DEFINED)
    log.transactional(1, snapshot(16, 5), (0, None, b"v", ()), (0, acked(1)[1], None, ()))
    log.mark(0, 1, commit=True)
    loaded = log.load()
    assert (loaded.cursors, loaded.malformed) == ({}, 3)
