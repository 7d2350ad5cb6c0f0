"""The retry buffer: what is kept, up to how many bytes, and when that holds up new deliveries."""

from __future__ import annotations

import pytest

from tailrace.broker.subscriptions.retained import Retained, size_of
from tailrace.records import Record, build_batch, read_batch


def record(
    offset: int = 0,
    *,
    key: bytes | None = None,
    value: bytes | None = b"",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> Record:
    (made,) = read_batch(build_batch([(0, key, value, headers)], base_offset=offset)).records()
    return made


def put(kept: Retained, place: int, given: Record) -> None:
    kept.put(place, given, size_of(given))


def test_a_record_is_kept_until_it_is_dropped() -> None:
    kept = Retained(bytes_max=10_000, required=False)
    put(kept, 1, record(5, value=b"v"))
    found = kept.get(1, 5)
    assert found is not None and found.value == b"v"
    assert kept.get(0, 5) is None and kept.get(1, 4) is None
    kept.drop(1, 5)
    assert kept.get(1, 5) is None and (len(kept), kept.bytes) == (0, 0)
    kept.drop(1, 5)  # harmless
    assert kept.bytes == 0


def test_a_record_that_is_put_twice_counts_once() -> None:
    kept = Retained(bytes_max=10_000, required=False)
    put(kept, 0, record(5, value=b"v"))
    before = kept.bytes
    put(kept, 0, record(5, value=b"v"))
    assert (len(kept), kept.bytes) == (1, before)


def test_past_the_bound_what_the_log_has_is_not_kept() -> None:
    kept = Retained(bytes_max=2_000, required=False)
    for offset in range(5):
        put(kept, 0, record(offset, value=bytes(1_000)))
    assert len(kept) == 2 and kept.get(0, 2) is None
    assert not kept.is_full  # it holds up nobody


def test_past_the_bound_what_the_log_may_lose_is_kept_and_holds_up_the_rest() -> None:
    kept = Retained(bytes_max=2_000, required=True)
    for offset in range(2):
        assert not kept.is_full
        put(kept, 0, record(offset, value=bytes(1_000)))
    assert (kept.is_full, kept.has_room) == (True, False)
    put(kept, 0, record(2, value=bytes(1_000)))
    assert len(kept) == 3
    kept.drop(0, 0)
    assert (kept.is_full, kept.has_room) == (True, False)
    kept.drop(0, 1)
    assert (kept.is_full, kept.has_room) == (False, True)


def test_a_whole_partition_is_forgotten_at_once() -> None:
    kept = Retained(bytes_max=10_000, required=True)
    for place in (0, 1):
        for offset in range(3):
            put(kept, place, record(offset))
    kept.drop_all(0)
    assert len(kept) == 3 and kept.get(0, 1) is None and kept.get(1, 1) is not None
    kept.drop_all(1)
    assert kept.bytes == 0


@pytest.mark.parametrize(
    "large",
    [
        record(key=bytes(5_000)),
        record(value=bytes(5_000)),
        record(headers=(("name", bytes(5_000)),)),
        record(headers=(("n" * 5_000, None),)),
    ],
)
def test_all_that_a_record_carries_counts(large: Record) -> None:
    assert 5_000 < size_of(large) < 6_000


def test_a_record_without_anything_counts_too() -> None:
    assert 100 < size_of(record(value=None)) < 500
