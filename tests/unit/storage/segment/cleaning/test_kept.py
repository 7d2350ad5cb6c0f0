"""Which records stay in a compacted log: against a dict, and one rule at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.storage.segment.cleaning.conftest import (
    DELAY_MS,
    DIRECTORY,
    LOG,
    HookedDisk,
    Pair,
    Rig,
    play,
)

from tailrace.model import Epoch, Offset
from tailrace.records import BatchFields, Compression, build_batch, read_batch

KEYS = st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c", b"a key that is longer than its digest", b""]))
VALUES = st.one_of(st.none(), st.binary(max_size=40))
BATCHES = st.tuples(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.sampled_from(Compression))
STEPS = st.lists(
    st.one_of(BATCHES, st.sampled_from(["compact", "compact", "wait", "reopen", "maintain"])),
    min_size=5,
    max_size=60,
)


@given(steps=STEPS, keys_max=st.sampled_from([1, 2, 500_000]), seed=st.integers(0, 1000))
@settings(max_examples=150)
def test_a_compacted_log_is_a_dict(
    steps: list[tuple[list[Pair], Compression] | str], keys_max: int, seed: int
) -> None:
    async def scenario() -> None:
        rig = Rig(disk=HookedDisk(seed), directory=replace(DIRECTORY, compaction_keys_max=keys_max))
        await rig.open()
        for step in steps:
            if isinstance(step, tuple):
                rig.append(*step[0], fields={"compression": step[1]})
            elif step == "wait":
                rig.clock.advance(DELAY_MS // 2 + 1)
            elif step == "reopen":
                await rig.reopen()
            elif step == "maintain":
                await rig.storage.maintain()
            else:
                await rig.compact()
                found = rig.sealed(await rig.check())
                keys = [stored.key for stored in found if stored.key is not None]
                assert len(keys) == len(set(keys)), "a sealed segment holds a record that is superseded"
        await rig.settle()
        await rig.check()
        await rig.check_reads()
        await rig.storage.close()

    play(scenario)


def test_superseded_records_go_and_offsets_stay() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k%d" % (n % 3), b"v%d" % n) for n in range(30))
        await rig.compact()
        active = rig.log.checkpoint_segment
        assert active > 20
        assert await rig.offsets() == list(range(active, 30))
        assert (rig.log.start_offset, rig.log.end_offset, rig.log.durable_offset) == (0, 30, 30)
        await rig.check_reads()

    play(scenario)


def test_a_rebuilt_batch_keeps_its_offsets_epoch_and_producer() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        fields: BatchFields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40}
        before = rig.append((b"stays", b"1"), (b"goes", b"2"), (b"goes", b"3"), fields=fields)
        await rig.fill([(b"goes", b"4" * 300), (b"x", b"5" * 300)])
        await rig.compact()
        after = (await rig.batches())[0]
        assert [record.key for record in after.records()] == [b"stays"]
        assert after.check_crc()
        for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "base_sequence"):
            assert getattr(after, name) == getattr(before, name), name

    play(scenario)


def test_batches_that_keep_all_are_copied_byte_for_byte() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        kept = rig.append((b"a", b"1"), (b"b", b"2"), fields={"compression": Compression.GZIP})
        data = bytes(kept.data)
        await rig.fill([(b"goes", b"1"), (b"goes", b"2" * 300), (b"x", b"3" * 300)])
        await rig.compact()
        assert bytes((await rig.batches())[0].data) == data
        assert 2 not in await rig.offsets()

    play(scenario)


def test_the_index_of_a_rewritten_segment_is_used(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        rig = await Rig(log=replace(LOG, segment_bytes=2000)).open()
        await rig.fill((b"k%d" % (n % 30), b"v%d" % n) for n in range(200))
        await rig.compact()
        await rig.reopen()
        await rig.check()
        await rig.check_reads()
        assert "made again" not in caplog.text

    play(scenario)


def test_the_active_segment_supersedes_and_is_not_rewritten() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"old", b"1" * 300), (b"other", b"2" * 300), (b"old", b"3"), (b"old", b"4")])
        await rig.compact()
        assert rig.log.checkpoint_segment == 2
        assert await rig.offsets() == [1, 2, 3]

    play(scenario)


def test_what_no_checkpoint_holds_supersedes_nothing() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", b"1" * 300), (b"x", b"2" * 300)])
        rig.append((b"k", b"3"))
        await rig.log.wait_durable(Offset(3))
        await rig.storage.maintain()
        assert await rig.offsets() == [0, 1, 2]
        await rig.compact()
        assert await rig.offsets() == [1, 2]

    play(scenario)


def test_a_batch_that_cannot_be_decoded_stays_and_supersedes_nothing() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k", b"1" * 300)])
        garbage = build_batch([(0, b"k", b"2" * 300, ())])
        garbage[61:70] = b"\xff" * 9
        batch = read_batch(garbage)
        batch.stamp_append_time(0)  # makes the CRC right
        rig.log.append(batch, leader_epoch=Epoch(3))
        await rig.fill([(b"x", b"3" * 300)])
        await rig.compact()
        assert [batch.base_offset for batch in await rig.batches()] == [0, 1, 2]

    play(scenario)


def test_the_header_of_a_remembered_batch_stays_for_its_producer() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        for sequence in range(8):
            fields: BatchFields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            rig.append((b"k", b"%d" % sequence * 100), fields=fields)
        await rig.fill([(b"k", b"9" * 300), (b"x", b"9" * 300)])
        await rig.compact()
        assert [batch.count for batch in await rig.batches()] == [0, 0, 0, 0, 0, 1, 1]
        assert [batch.base_sequence for batch in await rig.batches()][:5] == [3, 4, 5, 6, 7]
        before = rig.log.producers
        for name in sorted(rig.names()):
            if name.endswith(".snapshot"):
                await rig.disk.remove(f"{rig.log.path}/{name}")
        await rig.reopen()
        assert rig.log.producers == before

    play(scenario)


def test_a_record_that_is_not_final_supersedes_nothing() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill([(b"k%d" % (n % 3), b"v" * 30) for n in range(30)])
        for final_before, superseded_below in ((0, 0), (7, 7), (16, 16), (30, 30)):
            rig.log.final_before = partial(Offset, final_before)
            await rig.compact()
            newest = {key: n for n in range(superseded_below) for key in [n % 3]}
            kept = [n for n in range(30) if n >= superseded_below or n in newest.values()]
            sealed = max(rig.log.segments)
            assert [n for n in await rig.offsets() if n < sealed] == [n for n in kept if n < sealed]

    play(scenario)


def test_a_tombstone_that_is_not_final_stays_past_its_time() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(
            [(b"a", b"1"), (b"b", b"1"), (b"a", None), *[(b"c%d" % n, b"v" * 30) for n in range(20)]]
        )
        rig.log.final_before = lambda: Offset(2)
        for _ in range(2):
            await rig.compact()
            rig.clock.advance(DELAY_MS + 1)
        assert (await rig.offsets())[:3] == [0, 1, 2]
        rig.log.final_before = lambda: rig.log.durable_offset
        for _ in range(2):
            await rig.compact()
            rig.clock.advance(DELAY_MS + 1)
        await rig.compact()
        assert (await rig.offsets())[:2] == [1, 3]

    play(scenario)
