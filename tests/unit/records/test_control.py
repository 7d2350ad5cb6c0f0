"""Transaction markers: the fields written and read, and hostile bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import (
    HEADER_BYTES,
    Batch,
    BatchError,
    Marker,
    build_batch,
    read_batch,
    read_marker,
    rebuild_batch,
    write_marker,
)


def control(key: bytes | None, value: bytes | None, *, transactional: bool = True) -> Batch:
    return read_batch(
        build_batch(
            [(0, key, value, ())],
            control=True,
            transactional=transactional,
            producer_id=5,
            producer_epoch=0,
        )
    )


@given(
    producer_id=st.integers(0, (1 << 63) - 1),
    producer_epoch=st.integers(0, 32767),
    commit=st.booleans(),
    coordinator_epoch=st.integers(-1, (1 << 31) - 1),
    timestamp_ms=st.integers(0, 1 << 45),
)
def test_a_marker_is_read_as_it_was_written(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> None:
    batch = write_marker(
        producer_id,
        producer_epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=timestamp_ms,
    )
    assert read_marker(batch) == Marker(commit, coordinator_epoch)
    assert (batch.producer_id, batch.producer_epoch) == (producer_id, producer_epoch)
    assert (batch.base_sequence, batch.count, batch.max_timestamp) == (-1, 1, timestamp_ms)
    assert batch.is_control
    assert batch.is_transactional
    assert batch.check_crc()


def test_a_delete_horizon_leaves_the_marker_readable() -> None:
    batch = write_marker(7, 3, commit=True, coordinator_epoch=11, timestamp_ms=1000)
    kept = read_batch(rebuild_batch(batch, list(batch.records()), delete_horizon_ms=5000))
    assert kept.delete_horizon_ms == 5000
    assert read_marker(kept) == Marker(True, 11)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (struct.pack(">hh", 0, 2), bytes(6)),
        (struct.pack(">hh", -1, 0), bytes(6)),
        (bytes(4), struct.pack(">hi", -1, 0)),
    ],
)
def test_a_control_record_that_is_no_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BatchError):
        read_marker(control(key, value))


def test_fields_of_a_later_version_are_passed_over() -> None:
    batch = control(struct.pack(">hhq", 1, 1, 9), struct.pack(">hiq", 1, 4, 9))
    assert read_marker(batch) == Marker(True, 4)


def test_a_batch_of_records_is_no_marker() -> None:
    with pytest.raises(BatchError, match="no transaction marker"):
        read_marker(control(bytes(4), bytes(6), transactional=False))
    with pytest.raises(BatchError, match="no transaction marker"):
        read_marker(read_batch(build_batch([(0, bytes(4), bytes(6), ())])))


def test_the_header_alone_is_no_marker() -> None:
    batch = write_marker(7, 3, commit=True, coordinator_epoch=11, timestamp_ms=1000)
    with pytest.raises(BatchError):
        read_marker(Batch(batch.data[:HEADER_BYTES]))
