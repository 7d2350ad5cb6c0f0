"""Fetch with transactions in the log, written at the partition: what either isolation level is answered."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.kafka.rig import Rig, batch, fetch_body, only, play

from tailrace.broker import Partition
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.wire.kafka import FETCH, FetchResult, read_fetch_response

A, B = 7, 8


def write(rig: Rig, producer_id: int = A, *, sequence: int = 0, size: int = 1) -> Batch:
    made = build_batch(
        [(4_102_444_800_000, b"k", bytes(size), ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    found = read_batch(made)
    rig.partition(0).append(found, verified=True)
    return found


def end(rig: Rig, producer_id: int = A, *, commit: bool) -> None:
    assert rig.partition(0).append_marker(producer_id, 0, commit=commit, coordinator_epoch=0) is not None


def offsets_in(result: FetchResult[memoryview]) -> list[int]:
    return [found.base_offset for found in iter_batches(result.records or b"")]


@pytest.mark.parametrize("version", range(4, 13))
def test_read_committed_ends_at_the_last_stable_offset(version: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"plain"))
        write(rig)
        await client.produce(batch(b"plain"))
        committed = only(await client.fetch({0: 0}, version=version, isolation_level=1))
        assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
        assert offsets_in(committed) == [0]
        assert committed.aborted == []
        uncommitted = only(await client.fetch({0: 0}, version=version, isolation_level=0))
        assert (uncommitted.high_watermark, uncommitted.last_stable_offset) == (3, 1)
        assert offsets_in(uncommitted) == [0, 1, 2]
        assert not uncommitted.aborted
        behind = only(await client.fetch({0: 2}, version=version, isolation_level=1))
        assert (behind.error_code, offsets_in(behind)) == (0, [])

    play(scenario)


@pytest.mark.parametrize("is_cold", [False, True])
def test_the_answer_lists_the_aborted_transactions_that_it_meets(
    is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        write(rig, A)  # 0
        write(rig, B)  # 1
        end(rig, A, commit=False)  # 2
        end(rig, B, commit=True)  # 3
        write(rig, A, sequence=1)  # 4
        end(rig, A, commit=False)  # 5
        write(rig, B, sequence=1)  # 6, open
        if is_cold:
            monkeypatch.setattr(Partition, "read_nowait", lambda *_, **__: None)
        for start, listed in ((0, [(A, 0), (A, 4)]), (1, [(A, 0), (A, 4)]), (3, [(A, 4)]), (6, [])):
            found = only(await client.fetch({0: start}, isolation_level=1))
            assert found.aborted == listed, start
            assert offsets_in(found) == list(range(start, 6))
            assert found.last_stable_offset == 6
        short = only(await client.fetch({0: 0}, isolation_level=1, partition_max_bytes=100))
        assert (offsets_in(short), short.aborted) == ([0], [(A, 0)])
        assert not only(await client.fetch({0: 0}, isolation_level=0)).aborted

    play(scenario)


def test_a_list_without_records_is_empty() -> None:
    """Another partition took all the room: the client will ask for this one again."""

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        write(rig, A)
        end(rig, A, commit=False)
        await client.produce(batch(b"x" * 1000), partition=1)
        body = fetch_body({1: 0, 0: 0}, isolation_level=1, max_bytes=900)
        client.send(FETCH, 12, body)
        response = read_fetch_response((await client.receive(FETCH, 12))[1], 12)
        by_partition = {result.index: result for result in response.topics[0][1]}
        assert offsets_in(by_partition[1]) == [0]
        assert (offsets_in(by_partition[0]), by_partition[0].aborted) == ([], [])

    play(scenario)


def test_bytes_above_the_last_stable_offset_do_not_end_the_wait_of_read_committed() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=25_000, min_bytes=500, isolation_level=1))
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == 1)
        write(rig, size=1000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.03)
        end(rig, commit=True)
        result = only(read_fetch_response((await client.receive(FETCH, 12))[1], 12))
        assert offsets_in(result) == [0, 1]
        assert result.last_stable_offset == 2

    play(scenario)


def test_a_wait_that_begins_above_the_last_stable_offset_counts_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        write(rig, size=1000)
        client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=25_000, min_bytes=500, isolation_level=1))
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == 1)
        end(rig, commit=False)
        result = only(read_fetch_response((await client.receive(FETCH, 12))[1], 12))
        assert (offsets_in(result), result.aborted) == ([0, 1], [(A, 0)])

    play(scenario)
