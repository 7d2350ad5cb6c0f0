"""The rules of compaction, without files: when it is due, which keys are newest, which records stay."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TypeVar

import pytest

from tailrace.model import Epoch, Offset
from tailrace.records import Batch, BatchFields, build_batch, read_batch, rebuild_batch, write_marker
from tailrace.storage.aborted import AbortedEntry
from tailrace.storage.api import NO_LIMIT
from tailrace.storage.producers import ProducerStates
from tailrace.storage.retention import SegmentFacts
from tailrace.storage.segment.compaction import (
    CompactionPlan,
    Fates,
    Newest,
    Remnants,
    Sieve,
    Sifted,
    plan_compaction,
)

T = TypeVar("T")
NOW_MS = 1_000_000
LONG_KEY = b"a key of more than sixteen bytes"
Pair = tuple[bytes | None, bytes | None]


def finish(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def batch_of(
    *pairs: Pair, at: int = 0, horizon_ms: int | None = None, fields: BatchFields | None = None
) -> Batch:
    batch = read_batch(build_batch([(0, key, value, ()) for key, value in pairs], **(fields or {})))
    batch.assign(Offset(at), Epoch(0))
    if horizon_ms is None:
        return batch
    return read_batch(rebuild_batch(batch, list(batch.records()), delete_horizon_ms=horizon_ms))


def newest_of(batches: Iterable[Batch]) -> Newest:
    newest = Newest(0)
    for batch in batches:
        finish(newest.take(batch))
    return newest


def sieve_for(
    newest: Newest,
    *,
    delay_ms: int = 100,
    tombstones_may_go: bool = True,
    producers: ProducerStates | None = None,
    remnants: Remnants | None = None,
) -> Sieve:
    return Sieve(
        newest=newest,
        now_ms=NOW_MS,
        delete_retention_ms=delay_ms,
        tombstones_may_go=tombstones_may_go,
        producers=producers or ProducerStates(),
        remnants=remnants or Remnants(complete=True, replayed_from=100),
    )


def sift(batch: Batch, *later: Batch) -> Sifted:
    return finish(sieve_for(newest_of([batch, *later])).sift(batch))


# ---- when


def plan(
    *sizes: int,
    compacted_end: int = 0,
    horizons: Mapping[int, int] | None = None,
    lag_ms: int = 0,
    lag_ms_max: int = NO_LIMIT,
    times: tuple[int | None, ...] = (),
    ratio: float = 0.5,
) -> CompactionPlan | None:
    """Segments of ten offsets each."""
    facts = [
        SegmentFacts(
            base=10 * place,
            next_base=10 * place + 10,
            bytes=size,
            max_timestamp=times[place] if place < len(times) else None,
        )
        for place, size in enumerate(sizes)
    ]
    return plan_compaction(
        facts,
        compacted_end=compacted_end,
        delete_horizons=horizons or {},
        now_ms=NOW_MS,
        lag_ms_min=lag_ms,
        lag_ms_max=lag_ms_max,
        dirty_ratio_min=ratio,
    )


def test_nothing_to_rewrite_is_nothing_to_do() -> None:
    assert plan() is None
    assert plan(0, 0) is None


def test_everything_is_dirty_at_first() -> None:
    assert plan(5, 5) == CompactionPlan(bases=(0, 10), end=20)


def test_what_was_gone_through_is_clean() -> None:
    assert plan(5, 5, compacted_end=20) is None


def test_a_segment_that_was_gone_through_in_part_is_dirty() -> None:
    assert plan(5, 5, compacted_end=19) == CompactionPlan(bases=(0, 10), end=20)


@pytest.mark.parametrize(("clean", "dirty", "due"), [(100, 99, False), (100, 100, True), (0, 1, True)])
def test_enough_must_be_dirty(clean: int, dirty: int, due: bool) -> None:
    assert (plan(clean, dirty, compacted_end=10) is not None) == due


@pytest.mark.parametrize(("age_ms", "old_enough"), [(0, False), (499, False), (500, True), (501, True)])
def test_a_segment_younger_than_the_lag_ends_the_row(age_ms: int, old_enough: bool) -> None:
    found = plan(5, 5, 5, lag_ms=500, times=(0, NOW_MS - age_ms, 0))
    assert found == CompactionPlan(bases=(0, 10, 20) if old_enough else (0,), end=30 if old_enough else 10)


@pytest.mark.parametrize(("age_ms", "overdue"), [(0, False), (499, False), (500, True)])
def test_a_dirty_segment_older_than_the_greatest_lag_is_due_by_itself(age_ms: int, overdue: bool) -> None:
    times = (0, NOW_MS - age_ms)
    found = plan(100, 1, compacted_end=10, lag_ms_max=500, times=times)
    assert found == (CompactionPlan(bases=(0, 10), end=20) if overdue else None)
    assert plan(100, 1, compacted_end=10, times=times) is None


def test_what_is_clean_is_not_overdue() -> None:
    assert plan(100, 1, compacted_end=20, lag_ms_max=500, times=(0, 0)) is None


def test_what_is_clean_was_old_enough_once() -> None:
    assert plan(5, 5, lag_ms=500, times=(NOW_MS, 0), compacted_end=10) is not None


def test_without_a_lag_times_are_not_asked_for() -> None:
    assert plan(5, times=(NOW_MS + 1,)) is not None


def test_tombstones_that_may_go_are_due_by_themselves() -> None:
    horizons = {0: NOW_MS + 1, 10: NOW_MS, 40: NOW_MS - 1}
    assert plan(5, 5, 5, compacted_end=30, horizons=horizons) == CompactionPlan(bases=(10,), end=30)


# ---- the newest


def test_the_greatest_offset_of_a_key_counts() -> None:
    newest = newest_of([batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), batch_of((b"b", None), at=3)])
    assert newest.end == 4
    assert [newest.supersedes(b"a", offset) for offset in (0, 1, 2)] == [True, True, False]
    assert [newest.supersedes(b"b", offset) for offset in (1, 2, 3)] == [True, True, False]
    assert not newest.supersedes(b"c", 0)


@pytest.mark.parametrize("key", [b"", b"x" * 15, b"x" * 16, LONG_KEY, b"x" * 1000])
def test_keys_of_every_length_are_told_apart(key: bytes) -> None:
    newest = newest_of([batch_of((key, b"1"))])
    assert newest.supersedes(key, -1)
    assert not newest.supersedes(key + b"!", -1)
    assert not newest.supersedes(b"!" + key, -1)


def test_a_key_is_never_taken_for_the_digest_of_another() -> None:
    newest = newest_of([batch_of((LONG_KEY, b"1"))])
    (digest,) = newest.offsets
    assert len(digest) == 16
    assert not newest.supersedes(digest, -1)


def test_markers_supersede_nothing() -> None:
    newest = newest_of([batch_of((b"a", b"1"), fields={"control": True})])
    assert (newest.end, newest.offsets) == (1, {})


def test_records_of_committed_transactions_supersede_and_those_of_aborted_ones_do_not() -> None:
    batches = [
        batch_of((b"%d" % at, b"1"), at=at, fields={"transactional": True, "producer_id": 1})
        for at in range(5)
    ]
    newest = Newest(0, Fates([AbortedEntry(1, 1, 3, 4), AbortedEntry(2, 0, 9, 10)]))
    for batch in batches:
        finish(newest.take(batch))
    assert newest.offsets == {b"0": 0, b"3": 3, b"4": 4}


def test_a_batch_that_cannot_be_decoded_counts_not_even_in_part() -> None:
    data = build_batch([(0, b"a", b"1", ()), (0, b"b", b"2", ())])
    newest = newest_of([read_batch(data[:-1] + b"\x7f")])
    assert (newest.end, newest.offsets) == (2, {})


# ---- what stays


def test_a_batch_that_keeps_all_is_unchanged() -> None:
    assert sift(batch_of((b"a", b"1"), (b"b", b"2"))).unchanged


def test_superseded_records_go() -> None:
    found = sift(batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), batch_of((b"b", b"4"), at=3))
    assert not found.unchanged
    assert [record.offset for record in found.kept] == [2]


def test_a_batch_that_lost_everything_vanishes() -> None:
    assert sift(batch_of((b"a", b"1")), batch_of((b"a", b"2"), at=1)).vanishes


def test_records_without_a_key_stay() -> None:
    found = sift(batch_of((None, b"1"), (b"a", b"2"), (None, None)), batch_of((b"a", b"3"), at=3))
    assert [record.offset for record in found.kept] == [0, 2]


def test_what_was_not_gone_through_is_not_touched() -> None:
    sieve = sieve_for(newest_of([batch_of((b"a", b"1"))]))
    assert sieve.applies_to(batch_of((b"a", b"1")))
    assert not sieve.applies_to(batch_of((b"a", b"1"), at=1))


def test_a_batch_that_cannot_be_decoded_stays() -> None:
    broken = read_batch(build_batch([(0, b"a", b"1", ()), (0, b"a", b"2", ())])[:-1] + b"\x7f")
    assert finish(sieve_for(newest_of([batch_of((b"a", b"3"), at=2)])).sift(broken)).unchanged


def test_the_first_compaction_that_keeps_a_tombstone_sets_its_horizon() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None))
    sieve = sieve_for(newest_of([batch]))
    found = finish(sieve.sift(batch))
    assert found.delete_horizon_ms == sieve.delete_horizon_ms == NOW_MS + 100
    assert len(found.kept) == 2


@pytest.mark.parametrize(("horizon_ms", "stays"), [(NOW_MS + 1, True), (NOW_MS, False), (NOW_MS - 1, False)])
def test_a_tombstone_goes_once_its_horizon_is_past(horizon_ms: int, stays: bool) -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), horizon_ms=horizon_ms)
    sieve = sieve_for(newest_of([batch]))
    found = finish(sieve.sift(batch))
    assert found.unchanged == stays
    assert sieve.delete_horizon_ms == (horizon_ms if stays else None)
    if not stays:
        assert [record.offset for record in found.kept] == [0]
        assert found.delete_horizon_ms is None


def test_the_earliest_horizon_is_told() -> None:
    batches = [
        batch_of((b"%d" % ms, None), at=place, horizon_ms=NOW_MS + ms) for place, ms in enumerate((9, 3, 5))
    ]
    sieve = sieve_for(newest_of(batches))
    for batch in batches:
        finish(sieve.sift(batch))
    assert sieve.delete_horizon_ms == NOW_MS + 3


def test_a_horizon_without_a_tombstone_left_is_not_told() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), horizon_ms=NOW_MS + 1)
    sieve = sieve_for(newest_of([batch, batch_of((b"b", b"2"), at=2)]))
    finish(sieve.sift(batch))
    assert sieve.delete_horizon_ms is None


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS - 1])
def test_behind_a_segment_that_was_left_out_tombstones_stay(horizon_ms: int | None) -> None:
    batch = batch_of((b"a", None), horizon_ms=horizon_ms)
    sieve = sieve_for(newest_of([batch]), tombstones_may_go=False)
    assert finish(sieve.sift(batch)).unchanged
    assert sieve.delete_horizon_ms is None


def test_tombstones_of_committed_transactions_are_like_all_others() -> None:
    batch = batch_of((b"a", None), fields={"transactional": True, "producer_id": 1})
    found = finish(sieve_for(newest_of([batch])).sift(batch))
    assert (len(found.kept), found.delete_horizon_ms) == (1, NOW_MS + 100)


def test_records_of_aborted_transactions_go() -> None:
    batch = batch_of((b"a", b"1"), (None, b"2"), fields={"transactional": True, "producer_id": 1})
    newest = Newest(2, Fates([AbortedEntry(1, 0, 5, 6)]))
    assert finish(sieve_for(newest).sift(batch)).vanishes


# ---- markers


def marker_at(at: int, *, horizon_ms: int | None = None, producer_id: int = 1) -> Batch:
    batch = write_marker(producer_id, 0, commit=False, coordinator_epoch=0, timestamp_ms=0)
    batch.assign(Offset(at), Epoch(0))
    if horizon_ms is None:
        return batch
    return read_batch(rebuild_batch(batch, list(batch.records()), delete_horizon_ms=horizon_ms))


def sift_marker(
    marker: Batch, *, remnants: Remnants | None = None, producers: ProducerStates | None = None
) -> tuple[Sifted, set[int]]:
    sieve = sieve_for(Newest(100), producers=producers, remnants=remnants)
    return finish(sieve.sift(marker)), sieve.removed_markers


def test_a_marker_without_its_transaction_gets_a_delete_horizon_and_goes_after_it() -> None:
    found, removed = sift_marker(marker_at(5))
    assert (len(found.kept), found.delete_horizon_ms, removed) == (1, NOW_MS + 100, set())
    found, removed = sift_marker(marker_at(5, horizon_ms=NOW_MS + 1))
    assert (found.unchanged, removed) == (True, set())
    found, removed = sift_marker(marker_at(5, horizon_ms=NOW_MS))
    assert (found.vanishes, removed) == (True, {5})


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
def test_a_marker_stays_with_the_records_of_its_transaction(horizon_ms: int | None) -> None:
    remnants = Remnants(complete=True, replayed_from=100)
    remnants.keep(batch_of((b"a", b"1"), fields={"transactional": True, "producer_id": 1}))
    marker = marker_at(5, horizon_ms=horizon_ms)
    assert sift_marker(marker, remnants=remnants)[0].unchanged
    assert not sift_marker(marker, remnants=remnants)[0].unchanged, "the next transaction has none"


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
def test_a_marker_stays_while_a_snapshot_is_not_past_it(horizon_ms: int | None) -> None:
    marker = marker_at(5, horizon_ms=horizon_ms)
    assert sift_marker(marker, remnants=Remnants(complete=True, replayed_from=5))[0].unchanged
    assert not sift_marker(marker, remnants=Remnants(complete=True, replayed_from=6))[0].unchanged


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
def test_a_marker_stays_where_a_segment_was_left_out(horizon_ms: int | None) -> None:
    marker = marker_at(5, horizon_ms=horizon_ms)
    assert sift_marker(marker, remnants=Remnants(complete=False, replayed_from=100))[0].unchanged


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS])
def test_the_newest_marker_of_a_producer_stays(horizon_ms: int | None) -> None:
    producers = ProducerStates()
    producers.apply(marker_at(5))
    assert sift_marker(marker_at(5, horizon_ms=horizon_ms), producers=producers)[0].unchanged
    producers.apply(marker_at(8))
    assert not sift_marker(marker_at(5, horizon_ms=horizon_ms), producers=producers)[0].unchanged


def test_a_control_batch_that_ends_no_transaction_stays() -> None:
    batch = batch_of((b"a", b"1"), fields={"control": True})
    assert sift_marker(batch)[0].unchanged


def test_superseded_records_of_transactions_go() -> None:
    batch = batch_of((b"a", b"1"), fields={"transactional": True, "producer_id": 1})
    assert sift(batch, batch_of((b"a", b"2"), at=1)).vanishes


def test_without_a_delay_tombstones_stay_for_ever() -> None:
    batch = batch_of((b"a", None))
    assert finish(sieve_for(newest_of([batch]), delay_ms=-1).sift(batch)).unchanged


def test_of_an_idempotent_producer_the_remembered_headers_stay() -> None:
    producers = ProducerStates()
    batches = []
    for sequence in range(7):
        fields: BatchFields = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
        batches.append(batch_of((b"a", b"1"), at=sequence, fields=fields))
        producers.apply(batches[-1])
    sieve = sieve_for(newest_of([*batches, batch_of((b"a", b"2"), at=7)]), producers=producers)
    found = [finish(sieve.sift(batch)) for batch in batches]
    assert [each.vanishes for each in found] == [True, True, False, False, False, False, False]
    emptied = read_batch(rebuild_batch(batches[2], (), delete_horizon_ms=None))
    assert finish(sieve.sift(emptied)).unchanged
    producers.apply(batch_of((b"b", b"1"), at=8, fields={**fields, "base_sequence": 7}))
    assert finish(sieve.sift(emptied)).vanishes
