"""Snapshots: their bytes, with every cut and every flipped bit, and their files on a simulated disk."""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset
from tailrace.records import build_batch, crc32c, read_batch
from tailrace.storage import LeaderEpochs, ProducerStates
from tailrace.storage.segment.names import numbered
from tailrace.storage.segment.snapshot import Snapshots, State, read_snapshot, write_snapshot
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop

_T = TypeVar("_T")


def state_of(batches: list[tuple[int, int, int]]) -> State:
    """State after batches of (producer, records, leader epoch)."""
    epochs, producers = LeaderEpochs(), ProducerStates()
    offset, sequences = 0, dict.fromkeys(range(10), 0)
    for producer_id, count, epoch in batches:
        data = build_batch(
            [(offset, None, b"v", ())] * count,
            base_offset=offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
        )
        batch = read_batch(data)
        epochs.apply(batch.leader_epoch, batch.base_offset)
        producers.apply(batch)
        sequences[producer_id] += count
        offset += count
    return State(epochs, producers)


EXAMPLE = state_of([(1, 2, 0), (2, 1, 0), (1, 3, 4)])
batches = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(0, 5)), max_size=20)


@given(batches)
def test_what_is_written_is_read(made: list[tuple[int, int, int]]) -> None:
    state = state_of(made)
    assert read_snapshot(write_snapshot(state)) == state


def test_every_flipped_bit_is_noticed() -> None:
    whole = bytearray(write_snapshot(EXAMPLE))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_snapshot(bytes(whole)) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    assert read_snapshot(bytes(whole)) == EXAMPLE


def test_every_cut_is_noticed() -> None:
    whole = write_snapshot(EXAMPLE)
    for length in range(len(whole)):
        assert read_snapshot(whole[:length]) is None, length
    assert read_snapshot(whole + b"\0") is None


def test_contents_that_make_no_sense_are_noticed_even_under_a_right_checksum() -> None:
    epochs, producers = EXAMPLE.epochs.write(), EXAMPLE.producers.write()
    for length, body in (
        (len(epochs) - 1, epochs + producers),
        (len(epochs) + 1, epochs + producers),
        (0xFFFFFFFF, epochs + producers),
        (0, b""),
        (len(epochs), epochs + producers[:-1]),
    ):
        head = struct.pack("<8sI", b"TRSTATE1", length)
        assert read_snapshot(head + struct.pack("<I", crc32c(body, crc32c(head))) + body) is None


# ---- files


def play(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


async def new_snapshots(disk: SimulatedDisk, *known: int) -> Snapshots:
    """Snapshots at these offsets; each holds as many producers as its offset."""
    await disk.make_directory("p")
    await disk.sync_directory("")
    snapshots = Snapshots(disk)
    for offset in known:
        await snapshots.save("p", offset, write_snapshot(state_of([(n, 1, 0) for n in range(offset)])))
    return snapshots


def test_a_saved_snapshot_survives_a_power_cut_with_its_name() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await new_snapshots(disk, 3)

    async def look(disk: SimulatedDisk) -> None:
        found = await Snapshots(disk).load("p", 3)
        assert found == state_of([(0, 1, 0), (1, 1, 0), (2, 1, 0)])

    disk = SimulatedDisk(random.Random(1))
    play(main(disk))
    disk.power_cut(survival_chance=0.0)
    play(look(disk))


def test_one_that_is_missing_or_damaged_is_none() -> None:
    async def main(disk: SimulatedDisk) -> None:
        snapshots = await new_snapshots(disk, 3)
        assert await snapshots.load("p", 4) is None
        assert await snapshots.load("q", 3) is None
        disk.flip_bit(f"p/{numbered(3, 'snapshot')}", position=20, bit=0)
        assert await snapshots.load("p", 3) is None

    play(main(SimulatedDisk(random.Random(1))))


def test_the_newest_readable_one_not_past_an_offset_is_chosen() -> None:
    async def main(disk: SimulatedDisk) -> None:
        snapshots = await new_snapshots(disk, 2, 5, 8)
        for offset, chosen in ((1, 0), (2, 2), (4, 2), (5, 5), (7, 5), (8, 8), (100, 8)):
            place, producers = await snapshots.producers_before("p", Offset(offset))
            assert (place, len(producers)) == (chosen, chosen)
        disk.flip_bit(f"p/{numbered(5, 'snapshot')}", position=20, bit=0)
        place, producers = await snapshots.producers_before("p", Offset(7))
        assert (place, len(producers)) == (2, 2)

    play(main(SimulatedDisk(random.Random(1))))


def test_without_any_the_log_is_applied_from_its_beginning() -> None:
    async def main(disk: SimulatedDisk) -> None:
        snapshots = await new_snapshots(disk)
        for directory in ("p", "not there"):
            assert await snapshots.producers_before(directory, Offset(9)) == (0, ProducerStates())
            assert await snapshots.offsets(directory) == []

    play(main(SimulatedDisk(random.Random(1))))


def test_pruning_keeps_one_and_the_one_before_it() -> None:
    async def main(disk: SimulatedDisk) -> None:
        snapshots = await new_snapshots(disk, 1, 3, 5, 7, 9)
        await snapshots.prune("p", 7)
        assert await snapshots.offsets("p") == [5, 7, 9]
        await snapshots.prune("p", 7)
        assert await snapshots.offsets("p") == [5, 7, 9]

    play(main(SimulatedDisk(random.Random(1))))


def test_unfinished_files_are_not_taken_for_snapshots() -> None:
    async def main(disk: SimulatedDisk) -> None:
        snapshots = await new_snapshots(disk, 4)
        for name in (numbered(9, "snapshot") + ".tmp", numbered(9, "log"), "9.snapshot"):
            (await disk.create(f"p/{name}")).close()
        assert await snapshots.offsets("p") == [4]

    play(main(SimulatedDisk(random.Random(1))))


# ---- format 2


def transactional_state() -> State:
    epochs, producers, _ = state_of([(1, 2, 0), (2, 1, 4)])
    data = build_batch(
        [(9, None, b"v", ())],
        base_offset=3,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    producers.apply(read_batch(data))
    return State(epochs, producers, (0, 70))


def test_a_snapshot_without_transactions_is_of_format_1() -> None:
    assert write_snapshot(EXAMPLE)[:8] == b"TRSTATE1"
    assert write_snapshot(EXAMPLE._replace(aborted_bases=(0,)))[:8] == b"TRSTATE2"
    assert write_snapshot(transactional_state()._replace(aborted_bases=()))[:8] == b"TRSTATE2"


def test_open_transactions_and_aborted_lists_are_read_as_written() -> None:
    state = transactional_state()
    found = read_snapshot(write_snapshot(state))
    assert found == state
    assert found is not None
    assert found.producers.first_open == 3


def test_every_bit_and_every_byte_of_format_2_counts() -> None:
    whole = bytearray(write_snapshot(transactional_state()))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_snapshot(bytes(whole)) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    for length in range(len(whole)):
        assert read_snapshot(bytes(whole[:length])) is None, length


def test_a_count_of_segments_that_lies_is_noticed_even_under_a_right_checksum() -> None:
    epochs = EXAMPLE.epochs.write()
    for count in (1, 0xFFFFFFFF):
        body = epochs + struct.pack(">I", count) + EXAMPLE.producers.write(2)
        head = struct.pack("<8sI", b"TRSTATE2", len(epochs))
        assert read_snapshot(head + struct.pack("<I", crc32c(body, crc32c(head))) + body) is None
