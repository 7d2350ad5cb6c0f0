"""The numbering of a cursor's writes: which slot, which version, delta or snapshot."""

from __future__ import annotations

from uuid import UUID

from tailrace.broker.subscriptions.codec import SlotKey, read_definition, read_delta, read_key, read_snapshot
from tailrace.broker.subscriptions.journal import CursorRecords, definition_record, definition_tombstone
from tailrace.broker.subscriptions.stored import CursorDelta, CursorKey, CursorSnapshot, StoredSubscription

KEY = CursorKey("billing", UUID(int=7), 3)
DELTA = CursorDelta(position=5, ranges=[(7, 9)], failures={6: 1})


def _snapshot(version: int) -> CursorSnapshot:
    return CursorSnapshot(version=version, epoch=1, position=5, ranges=((7, 9),), failures={6: 1})


def _write(records: CursorRecords) -> tuple[int, int]:
    """(slot, version) of the next write; its content is what it should be."""
    time_ms, key, value, headers = records.record(DELTA, _snapshot, time_ms=77)
    assert (time_ms, headers) == (77, ())
    assert key is not None and value is not None
    place = read_key(key)
    assert isinstance(place, SlotKey) and place.cursor == KEY
    if place.slot:
        version, delta = read_delta(value)
        assert delta == DELTA
        return place.slot, version
    assert read_snapshot(value) == _snapshot(records.version)
    return 0, records.version


def test_a_new_cursor_writes_fifteen_deltas_then_a_snapshot_and_so_on() -> None:
    records = CursorRecords(KEY)
    written = [_write(records) for _ in range(34)]
    assert written == [(version % 16, version) for version in range(1, 35)]


def test_a_cursor_out_of_the_log_goes_on_with_a_snapshot_of_the_next_version() -> None:
    records = CursorRecords(KEY, version=20)
    assert [_write(records) for _ in range(3)] == [(0, 21), (1, 22), (2, 23)]


def test_a_snapshot_that_was_asked_for_starts_the_slots_over() -> None:
    records = CursorRecords(KEY)
    for _ in range(4):
        _write(records)
    records.need_snapshot()
    assert [_write(records) for _ in range(17)][:2] == [(0, 5), (1, 6)]
    assert _write(records) == (1, 22)


def test_asking_twice_gives_one_snapshot() -> None:
    records = CursorRecords(KEY)
    records.need_snapshot()
    records.need_snapshot()
    assert [_write(records) for _ in range(2)] == [(0, 1), (1, 2)]


def test_the_snapshot_is_not_made_where_a_delta_will_do() -> None:
    def never(version: int) -> CursorSnapshot:
        raise AssertionError(f"a snapshot of version {version}")

    CursorRecords(KEY).record(DELTA, never, time_ms=0)


def test_tombstones_cover_every_slot() -> None:
    tombstones = CursorRecords(KEY, version=3).tombstones(5)
    keys = [read_key(key or b"") for _, key, _, _ in tombstones]
    assert keys == [SlotKey(KEY, slot) for slot in range(16)]
    assert all((time_ms, value) == (5, None) for time_ms, _, value, _ in tombstones)


def test_a_definition_and_its_end_have_one_key() -> None:
    stored = StoredSubscription(
        name="billing", topic="orders", topic_id=UUID(int=7), settings={"mode": "shared"}, created_ms=1
    )
    time_ms, key, value, _ = definition_record(stored, time_ms=9)
    assert time_ms == 9
    assert value is not None and read_definition("billing", value) == stored
    assert definition_tombstone("billing", time_ms=10)[:3] == (10, key, None)
