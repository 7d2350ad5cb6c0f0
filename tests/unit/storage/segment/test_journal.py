"""The journal's bytes, with every cut and every flipped bit, and its files on a simulated disk."""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import crc32c
from tailrace.storage.segment.journal import (
    ROUND_HEADER_BYTES,
    SECTOR,
    Journal,
    JournalFile,
    JournalHeader,
    Round,
    frame_bytes,
    read_header,
    read_round,
    read_rounds,
    write_header,
    write_round,
)
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop

_T = TypeVar("_T")

ID = 0x1122334455667789
OTHER_ID = 0x9911223344556677
u64 = st.integers(0, (1 << 64) - 1)


def frame(
    lsn: int, entries: bytes = b"entries", *, synced: int = 0, count: int = 1, journal_id: int = ID
) -> bytes:
    return write_round(journal_id, lsn=lsn, synced_lsn=synced, count=count, parts=[entries])


def file_of(*frames: bytes, size: int = 1 << 14) -> memoryview:
    """A journal file of this use whose sectors hold `frames`, then zeros."""
    body = b"".join(frames)
    data = write_header(JournalHeader(ID, 1, size)) + body
    assert len(data) <= size
    return memoryview(bytearray(data.ljust(size, b"\0")))


def rounds_of(data: memoryview) -> list[Round]:
    header = read_header(data)
    assert header is not None
    return list(read_rounds(data, header))


def lsns_of(data: memoryview) -> list[int]:
    return [each.lsn for each in rounds_of(data)]


# ---- the header


@given(u64, u64, st.integers(SECTOR, 1 << 14))
def test_a_header_is_read_as_it_was_written(journal_id: int, first_lsn: int, size: int) -> None:
    header = JournalHeader(journal_id, first_lsn, size)
    data = write_header(header)
    assert len(data) == SECTOR
    assert read_header(memoryview(data.ljust(size, b"x"))) == header


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    whole = file_of(frame(1), size=2048)
    for bit in range(8 * SECTOR):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_header(whole) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    assert read_header(whole) is not None


def test_a_file_of_another_length_has_no_header() -> None:
    whole = bytes(file_of(frame(1), size=2048))
    for length in range(len(whole)):
        assert read_header(memoryview(whole)[:length]) is None, length
    assert read_header(memoryview(whole + b"\0")) is None


@pytest.mark.parametrize("data", [b"", bytes(2048), b"\xff" * 2048])
def test_what_was_never_written_has_no_header(data: bytes) -> None:
    assert read_header(memoryview(data)) is None


# ---- a round


@given(u64, u64, st.integers(0, (1 << 32) - 1), st.lists(st.binary(max_size=600), max_size=4), u64)
def test_a_round_is_read_as_it_was_written(
    lsn: int, synced: int, count: int, parts: list[bytes], journal_id: int
) -> None:
    entries = b"".join(parts)
    data = write_round(journal_id, lsn=lsn, synced_lsn=synced, count=count, parts=list(parts))
    assert len(data) == frame_bytes(len(entries))
    assert len(data) % SECTOR == 0
    assert len(data) - ROUND_HEADER_BYTES - len(entries) < SECTOR
    found = read_round(memoryview(data), 0, journal_id)
    assert found is not None
    assert (found.lsn, found.synced_lsn, found.count, bytes(found.entries)) == (lsn, synced, count, entries)


def test_every_flipped_bit_of_a_round_is_noticed() -> None:
    entries = bytes(range(100)) * 6
    whole = memoryview(bytearray(frame(7, entries)))
    for bit in range(8 * (ROUND_HEADER_BYTES + len(entries))):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_round(whole, 0, ID) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    assert read_round(whole, 0, ID) is not None


def test_every_cut_of_a_round_is_noticed() -> None:
    entries = bytes(range(200))
    whole = memoryview(frame(7, entries))
    for length in range(ROUND_HEADER_BYTES + len(entries)):
        assert read_round(whole[:length], 0, ID) is None, length


def test_what_lies_in_the_padding_does_not_matter() -> None:
    whole = bytearray(frame(7, b"abc"))
    whole[-100:] = b"\xff" * 100
    found = read_round(memoryview(whole), 0, ID)
    assert found is not None
    assert bytes(found.entries) == b"abc"


def test_a_round_of_another_use_of_the_file_is_none() -> None:
    assert read_round(memoryview(frame(7, journal_id=OTHER_ID)), 0, ID) is None


def test_a_round_that_was_moved_under_another_id_is_none() -> None:
    """The id is part of the checksum, so renaming a stale round does not make it ours."""
    whole = bytearray(frame(7, journal_id=OTHER_ID))
    struct.pack_into("<Q", whole, 0, ID)
    assert read_round(memoryview(whole), 0, ID) is None


@pytest.mark.parametrize("length", [0, 1, 23, 1 << 20, 0xFFFFFFFF])
def test_a_length_that_cannot_be_is_none_even_under_a_right_checksum(length: int) -> None:
    data = bytearray(2 * SECTOR)
    struct.pack_into("<QI", data, 0, ID, length)
    crc = crc32c(memoryview(data)[16 : 16 + min(length, len(data))], crc32c(data[:12]))
    struct.pack_into("<I", data, 12, crc)
    assert read_round(memoryview(data), 0, ID) is None


@pytest.mark.parametrize("position", [SECTOR, SECTOR - ROUND_HEADER_BYTES + 1, 10_000])
def test_there_is_no_round_where_the_file_ends(position: int) -> None:
    assert read_round(memoryview(bytes(SECTOR)), position, 0) is None


# ---- all rounds of a file


def test_rounds_follow_each_other() -> None:
    data = file_of(frame(5, b"a"), frame(6, b"b" * 1000), frame(7, b""))
    assert [(each.lsn, each.position) for each in rounds_of(data)] == [(5, 512), (6, 1024), (7, 2560)]


def test_an_unused_file_has_none() -> None:
    assert lsns_of(file_of()) == []


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_rounds_behind_a_damaged_one_are_found(damaged: int) -> None:
    frames = [frame(lsn, bytes([lsn]) * 700) for lsn in (1, 2, 3, 4)]
    data = file_of(*frames)
    data[SECTOR + sum(map(len, frames[:damaged])) + 50] ^= 4
    assert lsns_of(data) == [lsn for lsn in (1, 2, 3, 4) if lsn != damaged + 1]


def test_rounds_behind_zeros_are_found() -> None:
    assert lsns_of(file_of(frame(1), bytes(3 * SECTOR), frame(4), bytes(SECTOR), frame(6))) == [1, 4, 6]


def test_rounds_of_an_earlier_use_are_ignored() -> None:
    stale = [frame(lsn, bytes(1500), journal_id=OTHER_ID) for lsn in (1, 2)]
    assert lsns_of(file_of(frame(9), *stale)) == [9]
    assert lsns_of(file_of(*stale)) == []


def test_a_round_that_does_not_begin_on_a_sector_is_not_one() -> None:
    assert lsns_of(file_of(frame(1), bytes(SECTOR + 8), frame(2), bytes(SECTOR - 8))) == [1]


def test_an_id_within_the_entries_is_no_round() -> None:
    marker = struct.pack("<Q", ID)
    inner = marker * 200
    data = file_of(frame(1, inner), frame(2))
    assert lsns_of(data) == [1, 2]
    data[SECTOR + 45] ^= 1
    assert lsns_of(data) == [2]


def test_a_round_may_fill_the_file_to_its_last_byte() -> None:
    size = 4096
    room = size - SECTOR - ROUND_HEADER_BYTES
    assert frame_bytes(room) == size - SECTOR
    data = file_of(frame(1, b"x" * room), size=size)
    assert [len(each.entries) for each in rounds_of(data)] == [room]


def test_every_sector_torn_away_costs_the_rounds_that_it_belongs_to() -> None:
    frames = [frame(lsn, bytes([lsn]) * (lsn * 300)) for lsn in (1, 2, 3, 4)]
    owners = [lsn for lsn, each in zip((1, 2, 3, 4), frames, strict=True) for _ in range(len(each) // SECTOR)]
    for place, owner in enumerate(owners, start=1):
        data = file_of(*frames)
        data[place * SECTOR : (place + 1) * SECTOR] = bytes(SECTOR)
        # A last sector that holds nothing but padding is no loss.
        assert set(lsns_of(data)) | {owner} == {1, 2, 3, 4}
        if (
            data[place * SECTOR : (place + 1) * SECTOR]
            != file_of(*frames)[place * SECTOR : (place + 1) * SECTOR]
        ):
            assert owner not in lsns_of(data)


# ---- the files


def play(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


async def new_journal(disk: SimulatedDisk, *, files: int, file_bytes: int = 16384) -> Journal:
    journal = Journal(disk, file_bytes=file_bytes, rng=disk.rng)
    await disk.make_directory("journal")
    await disk.sync_directory("")
    for _ in range(files):
        journal.files.append(await journal.create_file())
    return journal


def new_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(4))


def test_a_new_file_is_whole_durable_and_without_rounds() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=2)
        assert [file.number for file in journal.files] == [1, 2]
        assert journal.size_bytes == 2 * 16384
        disk.power_cut(survival_chance=0.0)
        for path in ("journal/0001.journal", "journal/0002.journal"):
            data = memoryview(disk.content(path))
            assert len(data) == 16384
            assert rounds_of(data) == []

    play(main(new_disk()))


def test_every_use_draws_another_id() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=1)
        (file,) = journal.files
        ids = set()
        for lsn in (1, 5, 9):
            await journal.open(file, lsn)
            header = read_header(memoryview(disk.synced("journal/0001.journal").content))
            assert header == JournalHeader(journal.current_id, lsn, 16384)
            ids.add(journal.current_id)
        assert len(ids) == 3
        assert 0 not in ids

    play(main(new_disk()))


def test_a_reused_file_does_not_show_what_it_was() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=1)
        await journal.open(journal.files[0], 1)
        for lsn in (1, 2, 3):
            await journal.write(frame(lsn, journal_id=journal.current_id), lsn, sync=True)
        await journal.open(journal.files[0], 4)
        await journal.write(frame(4, journal_id=journal.current_id), 4, sync=True)
        assert lsns_of(memoryview(disk.content("journal/0001.journal"))) == [4]

    play(main(new_disk()))


def test_a_synced_round_survives_and_an_unsynced_one_need_not() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=1)
        await journal.open(journal.files[0], 1)
        await journal.write(frame(1, journal_id=journal.current_id), 1, sync=True)
        assert journal.synced_lsn == 1
        await journal.write(frame(2, journal_id=journal.current_id), 2, sync=False)
        assert journal.synced_lsn == 1
        assert lsns_of(memoryview(disk.synced("journal/0001.journal").content)) == [1]
        await journal.sync()
        assert journal.synced_lsn == 2
        assert lsns_of(memoryview(disk.synced("journal/0001.journal").content)) == [1, 2]

    play(main(new_disk()))


def test_the_next_file_begins_only_when_the_last_one_is_synced() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=2)
        first, second = journal.files
        await journal.open(first, 1)
        await journal.write(frame(1, journal_id=journal.current_id), 1, sync=False)
        await journal.open(second, 2)
        assert journal.synced_lsn == 1
        assert lsns_of(memoryview(disk.synced("journal/0001.journal").content)) == [1]

    play(main(new_disk()))


def test_there_is_room_up_to_the_last_sector() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=1)
        assert not journal.has_room(0)
        await journal.open(journal.files[0], 1)
        room = 16384 - SECTOR - ROUND_HEADER_BYTES
        assert journal.has_room(room)
        assert not journal.has_room(room + 1)
        await journal.write(frame(1, b"x" * (room - SECTOR), journal_id=journal.current_id), 1, sync=True)
        assert journal.has_room(SECTOR - ROUND_HEADER_BYTES)
        assert not journal.has_room(SECTOR - ROUND_HEADER_BYTES + 1)

    play(main(new_disk()))


def test_only_a_file_wholly_below_the_checkpoint_is_used_again() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=3)
        first, second, third = journal.files
        first.last_lsn, second.last_lsn, third.last_lsn = 5, 9, 12
        assert journal.reusable(4) is None
        assert journal.reusable(5) is first
        await journal.open(first, 13)
        assert journal.reusable(8) is None
        assert journal.reusable(9) is second

    play(main(new_disk()))


def test_a_file_counts_as_used_before_its_round_is_on_the_disk() -> None:
    """A round in flight may be on the disk already: its file is not free although the write failed."""

    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=1)
        await journal.open(journal.files[0], 1)
        disk.write_error_chance = 1.0
        with pytest.raises(OSError, match="No space"):
            await journal.write(frame(1, journal_id=journal.current_id), 1, sync=True)
        assert journal.files[0].last_lsn == 1
        assert journal.synced_lsn == 0

    play(main(new_disk()))


def test_files_are_numbered_after_the_greatest() -> None:
    async def main(disk: SimulatedDisk) -> None:
        journal = await new_journal(disk, files=0)
        file = await disk.create("journal/0007.journal")
        journal.files.append(JournalFile(7, file, 16384))
        assert (await journal.create_file()).number == 8

    play(main(new_disk()))
