"""CHECKPOINT as bytes: round trips over generated checkpoints, and every cut and every flipped bit."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset, PartitionId
from tailrace.records import crc32c
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, Row, read_checkpoint, write_checkpoint

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
offsets = st.integers(0, (1 << 63) - 1).map(Offset)
rows = st.builds(
    Row,
    life=u64,
    partition_id=st.builds(PartitionId, st.uuids(), u32),
    start=offsets,
    end=offsets,
    segment=offsets,
    length=u32,
    index_entries=u32,
    index_crc=u32,
    time_crc=u32,
    open_crc=u32,
    snapshot=st.integers(NONE, (1 << 63) - 1),
    damaged=st.integers(NONE, (1 << 63) - 1),
)
checkpoints = st.builds(
    Checkpoint,
    lsn=u64,
    next_life=u64,
    journal_files=st.lists(u32, max_size=5).map(tuple),
    rows=st.lists(rows, max_size=4).map(tuple),
)

EXAMPLE = Checkpoint(
    lsn=12,
    next_life=9,
    journal_files=(1, 2),
    rows=tuple(
        Row(
            life=life,
            partition_id=PartitionId(UUID(int=life), 3),
            start=Offset(5),
            end=Offset(90),
            segment=50,
            length=1234,
            snapshot=80,
        )
        for life in (1, 8)
    ),
)


def sealed(payload: bytes, *, length: int | None = None) -> memoryview:
    """A file with this content under a right checksum."""
    start = struct.pack("<8sI", b"TRCHECK1", len(payload) if length is None else length)
    return memoryview(start + struct.pack("<I", crc32c(payload, crc32c(start))) + payload)


@given(checkpoints)
def test_what_is_written_is_read(checkpoint: Checkpoint) -> None:
    assert read_checkpoint(memoryview(write_checkpoint(checkpoint))) == checkpoint


def test_every_flipped_bit_is_noticed() -> None:
    whole = memoryview(bytearray(write_checkpoint(EXAMPLE)))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_checkpoint(whole) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    assert read_checkpoint(whole) == EXAMPLE


def test_every_cut_is_noticed() -> None:
    whole = memoryview(write_checkpoint(EXAMPLE))
    for length in range(len(whole)):
        assert read_checkpoint(whole[:length]) is None, length


def test_a_byte_too_many_is_noticed() -> None:
    assert read_checkpoint(memoryview(write_checkpoint(EXAMPLE) + b"\0")) is None


@pytest.mark.parametrize(
    "data",
    [
        memoryview(b""),
        memoryview(bytes(1000)),
        sealed(b""),
        sealed(struct.pack("<QQII", 1, 1, 0xFFFFFFFF, 0)),
        sealed(struct.pack("<QQII", 1, 1, 0, 0xFFFFFFFF)),
        sealed(struct.pack("<QQII", 1, 1, 1, 0)),
        sealed(struct.pack("<QQII", 1, 1, 0, 0) + bytes(4)),
        sealed(struct.pack("<QQII", 1, 1, 0, 0), length=25),
    ],
    ids=["empty", "zeros", "no head", "files", "rows", "a file missing", "bytes left", "length"],
)
def test_counts_that_lie_are_noticed_even_under_a_right_checksum(data: memoryview) -> None:
    assert read_checkpoint(data) is None


def test_a_right_checksum_over_right_counts_is_read() -> None:
    found = read_checkpoint(sealed(struct.pack("<QQIII", 7, 3, 1, 0, 9)))
    assert found == Checkpoint(lsn=7, next_life=3, journal_files=(9,), rows=())
