"""Portions of real partitions: bounds, ranges, hot and cold bytes, damage under each policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import Portion, read, read_nowait
from tailrace.model import LogDamaged, Offset, OffsetOutOfRange
from tailrace.records import BadSpan, BatchError, build_batch, crc32c, pass_over, read_batch, stop
from tailrace.storage import Slice

from .subscriptions.rig import COLD, Rig, make_cold, play, play_lives
from .test_feed import NOW_MS, broken_batch, control_batch

MUCH = 1 << 20


def half_broken_batch() -> bytearray:
    """Three records, the last of which claims headers that it does not have; its checksum is correct."""
    data = build_batch([(NOW_MS, None, b"v", ())] * 3)
    data[-1] = 14
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


def hot(partition: Partition, offset: int = 0, *, bytes_max: int = MUCH, end: int = MUCH) -> Portion:
    found = read_nowait(partition, offset, bytes_max=bytes_max, end=end)
    assert found is not None
    return found


def offsets(portion: Portion) -> list[int]:
    return [record.offset for record in portion.records()]


async def filled(rig: Rig, *, batches: int = 3, records: int = 3) -> Partition:
    await rig.topic()
    for _ in range(batches):
        await rig.publish(*[b"v"] * records)
    return rig.partition()


def test_records_are_read_from_an_offset_on() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        for offset in range(9):
            for portion in (hot(partition, offset), await read(partition, offset, bytes_max=MUCH)):
                assert offsets(portion) == list(range(offset, 9))
                assert portion.next_offset == 9
        assert "offsets 4-8" in repr(hot(partition, 4))

    play(scenario)


def test_a_portion_has_at_least_one_batch_and_says_where_to_go_on() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        portion = hot(partition, 4, bytes_max=1)
        assert (offsets(portion), portion.next_offset) == ([4, 5], 6)

    play(scenario)


@pytest.mark.parametrize(("start", "end"), [(0, 4), (1, 2), (4, 6), (5, 5), (7, 5), (0, 100)])
def test_nothing_at_or_above_an_end_is_shown(start: int, end: int) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        for portion in (
            hot(partition, start, end=end),
            await read(partition, start, bytes_max=MUCH, end=end),
        ):
            assert offsets(portion) == list(range(start, min(end, 9)))
            assert portion.next_offset == max(start, min(end, 9))

    play(scenario)


def test_nothing_above_the_last_stable_offset_is_shown_unless_asked_for() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        partition.last_stable_offset = Offset(6)
        for offset, shown in ((0, [0, 1, 2, 3, 4, 5]), (5, [5]), (6, []), (8, [])):
            for portion in (hot(partition, offset), await read(partition, offset, bytes_max=MUCH)):
                assert offsets(portion) == shown
                assert portion.next_offset == max(offset, 6)
        everything = await read(partition, 4, bytes_max=MUCH, read_uncommitted=True)
        assert (offsets(everything), everything.next_offset) == ([4, 5, 6, 7, 8], 9)
        at_once = read_nowait(partition, 4, bytes_max=MUCH, read_uncommitted=True, end=8)
        assert at_once is not None and offsets(at_once) == [4, 5, 6, 7]

    play(scenario)


def test_what_becomes_visible_while_bytes_are_read_is_left_for_the_next_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound is taken before the read: with it belongs the list of aborted transactions of that turn."""

    async def scenario(rig: Rig) -> None:
        partition = await filled(rig, batches=1)
        unpatched = Partition.read

        async def slow(
            self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            monkeypatch.undo()
            await rig.publish(b"late")
            return await unpatched(self, offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(Partition, "read", slow)
        portion = await read(partition, 0, bytes_max=MUCH)
        assert (offsets(portion), portion.next_offset) == ([0, 1, 2], 3)
        assert offsets(hot(partition, 3)) == [3]

    play(scenario)


def test_an_offset_outside_of_the_log_is_told() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        await partition.delete_records(4)
        assert offsets(hot(partition, 4)) == [4, 5, 6, 7, 8]
        assert offsets(hot(partition, 9)) == []
        for offset in (3, 10):
            with pytest.raises(OffsetOutOfRange):
                read_nowait(partition, offset, bytes_max=MUCH)
            with pytest.raises(OffsetOutOfRange):
                await read(partition, offset, bytes_max=MUCH)

    play(scenario)


def test_control_batches_are_shown_only_when_asked_for() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig, batches=1, records=1)
        partition.append(read_batch(control_batch()))
        await rig.publish(b"b")
        portion = hot(partition)
        assert offsets(portion) == [0, 2]
        assert [visible.first for visible in portion.batches()] == [0, 2]
        assert [visible.first for visible in portion.batches(shows_control=True)] == [0, 1, 2]

    play(scenario)


def test_records_of_aborted_transactions_are_not_visible() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await filled(rig, batches=1, records=1)
        for producer_id, sequence, commit in ((7, 0, False), (8, 0, True), (7, 1, True), (8, 1, False)):
            batch = build_batch(
                [(NOW_MS, b"k", b"v", ())] * 2,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=2 * sequence,
                transactional=True,
            )
            partition.append(read_batch(batch), verified=True)
            await rig.publish(b"between")
            partition.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0)
        await partition.wait_acknowledged(partition.end_offset)
        committed = [0, 3, 5, 6, 7, 9, 10, 11, 15]
        for offset in range(17):
            shown = [each for each in committed if each >= offset]
            for portion in (hot(partition, offset), await read(partition, offset, bytes_max=MUCH)):
                assert (offsets(portion), portion.next_offset) == (shown, 17), offset
        for offset in (1, 2, 13, 14):
            for portion in (
                hot(partition, offset, bytes_max=1),
                await read(partition, offset, bytes_max=1),
            ):
                assert offsets(portion) == []
        everything = await read(partition, 0, bytes_max=MUCH, read_uncommitted=True)
        assert offsets(everything) == [0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15]

    play(scenario)


def test_the_list_of_aborted_transactions_is_of_the_turn_in_which_the_read_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compaction may forget a transaction while the bytes of its records are on their way."""

    async def scenario(rig: Rig) -> None:
        partition = await filled(rig, batches=1, records=1)
        batch = build_batch(
            [(NOW_MS, b"k", b"v", ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition.append(read_batch(batch), verified=True)
        partition.append_marker(7, 0, commit=False, coordinator_epoch=0)
        unpatched = Partition.read

        async def slow(
            self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            monkeypatch.setattr(Partition, "aborted", lambda *_: ())
            return await unpatched(self, offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(Partition, "read", slow)
        assert offsets(await read(partition, 0, bytes_max=MUCH)) == [0]

    play(scenario)


def test_cold_bytes_are_not_there_at_once_and_come_when_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(monkeypatch)

    async def before(rig: Rig) -> None:
        await filled(rig, batches=10)

    async def after(rig: Rig) -> None:
        assert read_nowait(rig.partition(), 7, bytes_max=MUCH) is None
        assert offsets(await read(rig.partition(), 7, bytes_max=MUCH)) == list(range(7, 30))

    play_lives(tmp_path, before, after, config=COLD)


# ---- records that make no sense


async def broken(rig: Rig) -> Partition:
    """Offsets 0-2 sound, 3-5 broken, 6-8 sound."""
    partition = await filled(rig, batches=1)
    partition.append(read_batch(broken_batch(3)))
    await rig.publish(*[b"v"] * 3)
    return partition


def test_records_that_make_no_sense_are_refused_with_their_place() -> None:
    async def scenario(rig: Rig) -> None:
        portion = hot(await broken(rig))
        found: list[int] = []
        with pytest.raises(BatchError, match="the batch at offset 3: "):
            found.extend(record.offset for record in portion.records())
        assert found == [0, 1, 2]

    play(scenario)


def test_records_that_make_no_sense_are_passed_over_or_end_the_portion() -> None:
    async def scenario(rig: Rig) -> None:
        portion = hot(await broken(rig))
        passed = [record.offset for record in portion.records(on_damage=pass_over)]
        assert passed == [0, 1, 2, 6, 7, 8]
        assert [record.offset for record in portion.records(on_damage=stop)] == [0, 1, 2]

    play(scenario)


def test_the_policy_is_told_which_offsets_of_the_range_are_lost() -> None:
    async def scenario(rig: Rig) -> None:
        partition = await broken(rig)
        for start, lost in ((0, (3, 6)), (4, (4, 6))):
            spans: list[BadSpan] = []

            def note(span: BadSpan, spans: list[BadSpan] = spans) -> bool:
                spans.append(span)
                return True

            list(hot(partition, start).records(on_damage=note))
            assert [(span.first_offset, span.next_offset) for span in spans] == [lost]

    play(scenario)


def test_records_before_the_fault_of_a_batch_are_given_and_not_counted_as_lost() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        rig.partition().append(read_batch(half_broken_batch()))
        spans: list[BadSpan] = []

        def note(span: BadSpan) -> bool:
            spans.append(span)
            return True

        found = [record.offset for record in hot(rig.partition()).records(on_damage=note)]
        assert found == [0, 1]
        assert [(span.first_offset, span.next_offset) for span in spans] == [(2, 3)]

    play(scenario)


def test_damage_on_the_disk_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def damaged(
        self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        raise LogDamaged("segment 7 is not what was written")

    async def scenario(rig: Rig) -> None:
        partition = await filled(rig)
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "read", damaged)
            with pytest.raises(LogDamaged, match="segment 7"):
                await read(partition, 0, bytes_max=MUCH)

    play(scenario)
