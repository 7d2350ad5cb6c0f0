"""Batches of an exact size: they are what a producer would send, and each has a buffer of its own."""

from __future__ import annotations

import pytest

from tailrace.bench.batch import RECORD_BYTES, batch_of, fresh_batches
from tailrace.model import Epoch, Offset
from tailrace.records import HEADER_BYTES, BatchError, validate_batch


@pytest.mark.parametrize("size", [262, 4096, 16 * 1024, 1 << 20])
def test_a_batch_takes_exactly_the_bytes_asked_for_and_is_sound(size: int) -> None:
    data = batch_of(size)
    assert len(data) == size
    batch = validate_batch(data, bytes_max=size)
    assert len(list(batch.records())) == batch.count


def test_a_large_batch_is_made_of_records_of_the_usual_size() -> None:
    values = [
        record.value or b"" for record in validate_batch(batch_of(16 * 1024), bytes_max=1 << 20).records()
    ]
    assert len(values) > 100
    assert {len(value) for value in values[:-1]} == {RECORD_BYTES}


@pytest.mark.parametrize("size", [0, 21, HEADER_BYTES, HEADER_BYTES + 1])
def test_a_size_that_no_batch_has_is_refused(size: int) -> None:
    with pytest.raises(BatchError, match=f"exactly {size} bytes"):
        batch_of(size)


def test_fresh_batches_share_nothing() -> None:
    template = batch_of(262)
    first, second = fresh_batches(template, 2)
    assert not first.data.readonly  # else the append would copy it while the clock runs
    first.assign(Offset(77), Epoch(5))
    assert bytes(second.data) == template
    assert bytes(first.data) != template


def test_a_template_that_is_damaged_is_refused() -> None:
    damaged = bytearray(batch_of(262))
    damaged[-1] ^= 1
    with pytest.raises(BatchError, match="CRC"):
        fresh_batches(bytes(damaged), 1)
