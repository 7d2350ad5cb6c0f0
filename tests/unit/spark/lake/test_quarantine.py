"""Bytes that are no records: saved as they were fetched, with the reason, once."""

from __future__ import annotations

import json

import pytest
from tests.unit.spark.lake.kit import Kit, record_at

from tailrace.records import build_batch
from tailrace.spark.codec import Piece, decode_pieces
from tailrace.spark.lake import Staging, Written
from tailrace.spark.lake.quarantine import save_bad


@pytest.fixture(autouse=True)
def lake(kit: Kit) -> None:
    kit.open("parquet")


def batch(start: int, end: int) -> bytearray:
    return build_batch([record_at(offset) for offset in range(start, end)], base_offset=start)


def broken(start: int, end: int, *, flip: int = -1) -> bytearray:
    data = batch(start, end)
    data[flip] ^= 1
    return data


def archived(kit: Kit, data: bytes | bytearray, *, end: int) -> Written:
    pieces = decode_pieces(data, start=0, end=end, topic="orders", partition=3, headers=True, keeps_bad=True)
    with Staging(kit.root) as staging:
        return kit.write(staging.path, pieces, partition=3)


def test_a_broken_batch_is_set_aside_and_its_neighbours_are_not(kit: Kit) -> None:
    middle = broken(3, 5)
    written = archived(kit, batch(0, 3) + middle + batch(5, 9), end=9)
    (bad,) = written.bad
    name = "_tailrace/quarantine/topic=orders/p00003-00000000000000000003-00000000000000000004"
    assert (bad.first_offset, bad.last_offset, bad.saved) == (3, 4, f"{name}.bin")
    assert "CRC" in bad.reason
    assert (kit.root / f"{name}.bin").read_bytes() == middle
    said = json.loads((kit.root / f"{name}.json").read_text())
    assert said == {
        "topic": "orders",
        "partition": 3,
        "first_offset": 3,
        "last_offset": 4,
        "reason": bad.reason,
        "saved": bad.saved,
    }
    assert (written.rows, written.next_offset) == (7, 9)


def test_the_same_bytes_are_saved_once(kit: Kit) -> None:
    data = broken(0, 3)
    first, second = archived(kit, data, end=3), archived(kit, data, end=3)
    assert first.bad == second.bad
    assert len(list(kit.root.rglob("*.bin"))) == 1


def test_other_bytes_that_claim_the_same_offsets_are_kept_beside_them(kit: Kit) -> None:
    first = archived(kit, broken(0, 3), end=3).bad[0].saved
    second = archived(kit, broken(0, 3, flip=-2), end=3).bad[0].saved
    assert first is not None and second is not None and second == first.replace(".bin", "-1.bin")
    assert (kit.root / first).read_bytes() != (kit.root / second).read_bytes()


def test_a_topic_whose_name_has_an_ending_in_it_keeps_its_folder(kit: Kit) -> None:
    (piece,) = decode_pieces(
        broken(0, 3), start=0, end=3, topic="logs.binary", partition=3, headers=True, keeps_bad=True
    )
    bad = save_bad(kit.root, piece.bad[0], topic="logs.binary", partition=3, next_offset=3)
    name = "_tailrace/quarantine/topic=logs.binary/p00003-00000000000000000000-00000000000000000002"
    assert bad.saved == f"{name}.bin"
    assert json.loads((kit.root / f"{name}.json").read_text())["saved"] == bad.saved


def test_offsets_that_make_no_sense_still_make_a_name(kit: Kit) -> None:
    data = batch(0, 3) + b"\xff" * 100
    (bad,) = archived(kit, data, end=9).bad
    assert (bad.first_offset, bad.last_offset) == (3, 3)
    assert bad.saved is not None and (kit.root / bad.saved).read_bytes() == b"\xff" * 100


def test_a_span_without_its_bytes_is_told_of_without_a_file(kit: Kit) -> None:
    (piece,) = decode_pieces(
        broken(0, 3), start=0, end=3, topic="orders", partition=3, headers=True, keeps_bad=True
    )
    span = type(piece.bad[0])(
        position=0, size=0, first_offset=0, next_offset=3, reason="gone", code=piece.bad[0].code
    )
    with Staging(kit.root) as staging:
        written = kit.write(staging.path, iter([Piece(rows=piece.rows, bad=[span], next_offset=3)]))
    assert written.bad[0].saved is None
    assert not list(kit.root.rglob("*.json"))[1:]  # only lake.json
