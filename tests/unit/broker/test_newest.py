"""Where the newest records begin: against all records by time, over gaps, and without reading the log."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker import Partition
from tailrace.broker.newest import find_before, plan_newest
from tailrace.model import Offset
from tailrace.records import build_batch, read_batch
from tailrace.storage.api import Slice

from .conftest import Play, Rig, opened
from .test_reading import partitions_of, put, put_garbage


class Reads:
    """Counts what partitions are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = Partition.read

        async def counted(
            partition: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            self.count += 1
            return await read(partition, offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(Partition, "read", counted)


def test_the_last_of_a_partition(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for first in range(0, 30, 10):
            put(partition, range(first, first + 10))
        assert await plan_newest([partition], 1) == {0: 29}
        assert await plan_newest([partition], 10) == {0: 20}
        assert await plan_newest([partition], 11) == {0: 19}
        assert await plan_newest([partition], 1000) == {0: 0}
        await partition.delete_records(25)
        assert await plan_newest([partition], 10) == {0: 25}

    play(scenario)


def test_aborted_and_open_transactions_are_not_counted(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [0, 1])
        for sequence, commit in ((0, True), (1, False), (2, None)):
            batch = build_batch(
                [(10 + sequence, b"k", b"v", ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            partition.append(read_batch(batch), verified=True)
            if commit is not None:
                partition.append_marker(7, 0, commit=commit, coordinator_epoch=0)
        assert await plan_newest([partition], 1) == {0: 2}
        assert await plan_newest([partition], 2) == {0: 1}
        assert await plan_newest([partition], 9) == {0: 0}

    play(scenario)


def test_an_empty_partition_begins_at_its_end(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        first, second = await partitions_of(rig, 2)
        put(second, [1, 2])
        await second.delete_records(2)
        assert await plan_newest([first, second], 5) == {0: 0, 1: 2}

    play(scenario)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_the_newest_of_all_partitions_are_the_last_when_sorted_by_time(seed: int, count: int) -> None:
    """Times grow within a partition here, as they do where a clock gives them."""
    chance = random.Random(seed)

    async def main() -> None:
        async with opened() as rig:
            partitions = await partitions_of(rig, chance.randint(1, 4))
            expected: list[tuple[int, int, int]] = []
            time = 0
            for _ in range(chance.randint(0, 12)):
                partition = chance.choice(partitions)
                gap = chance.choice([0, 0, 1, 7, 100])
                times = [time := time + 1 for _ in range(chance.randint(1, 5))]
                is_control = chance.random() < 0.2
                first = partition.end_offset + gap
                put(partition, times, gap=gap, control=is_control)
                if not is_control:
                    expected += [(at, partition.index, first + n) for n, at in enumerate(times)]
            starts = await plan_newest(partitions, count)
            newest = sorted(expected)[-count:]
            assert [each for each in sorted(expected) if each[2] >= starts[each[1]]] == newest

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_long_log_is_not_gone_through(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        partitions = await partitions_of(rig, 3)
        for at in range(300):
            put(partitions[at % 3], [at])
        reads = Reads(monkeypatch)
        assert await plan_newest(partitions, 6) == {0: 98, 1: 98, 2: 98}
        assert reads.count < 25

    play(scenario)


def test_a_wide_gap_is_crossed_in_few_steps(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for _ in range(500):
            put(partition, [1, 2])
        put(partition, [3], gap=10_000_000)
        reads = Reads(monkeypatch)
        found = await find_before(partition, 10_001_000)
        assert found is not None
        assert found.batch.base_offset == 998
        assert reads.count < 60
        assert await plan_newest([partition], 2) == {0: 999}

    play(scenario)


def test_partitions_that_are_older_are_not_opened(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        partitions = await partitions_of(rig, 50)
        for each in partitions:
            put(each, [each.index])
        reads = Reads(monkeypatch)
        starts = await plan_newest(partitions, 2)
        assert [index for index, start in starts.items() if start == 0] == [48, 49]
        assert reads.count <= 50 + 4

    play(scenario)


def test_the_newest_end_at_the_last_stable_offset(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for first in range(0, 30, 10):
            put(partition, range(first, first + 10))
        partition.last_stable_offset = Offset(20)
        assert await plan_newest([partition], 1) == {0: 19}
        assert await plan_newest([partition], 15) == {0: 5}
        assert await plan_newest([partition], 0) == {0: 20}

    play(scenario)


def test_what_cannot_be_decoded_is_not_counted(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [1])
        put_garbage(partition)
        put(partition, [2])
        assert await plan_newest([partition], 1) == {0: 2}
        assert await plan_newest([partition], 2) == {0: 0}
        assert await plan_newest([partition], 9) == {0: 0}

    play(scenario)
