"""The log of a parquet table: numbering, checkpoints, races, roll-forward, and every kind of damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spark.lake.kit import Kit

from tailrace.model import StorageError, TopicPartition
from tailrace.records import crc32c
from tailrace.spark.lake import Advance, Change, Staging, Table
from tailrace.spark.lake.durable import hold_lock
from tailrace.spark.lake.entry import Entry, write_entry
from tailrace.spark.lake.layout import LOCK
from tailrace.spark.lake.log import TableLog
from tailrace.spark.lake.manifest import ManifestTable

ORDERS = TopicPartition("orders", 0)


class Killed(BaseException):
    """Stands for the end of the process."""


def killing_at(step: str, *, turn: int = 1) -> Callable[[str], None]:
    """Dies when `step` comes for the `turn`th time."""
    left = [turn]

    def on_step(now: str) -> None:
        left[0] -= now == step
        if now == step and not left[0]:
            raise Killed

    return on_step


@pytest.fixture
def lake(kit: Kit) -> ManifestTable:
    """A parquet table that makes a checkpoint at every third commit."""
    kit.open("parquet")
    return ManifestTable(kit.root, checkpoint_every=3)


def advance(table: Table, start: int, end: int) -> None:
    table.commit(
        Change(operation="archive", advances=[Advance(topic="orders", partition=0, start=start, end=end)])
    )


def entry_path(kit: Kit, version: int) -> Path:
    return kit.root / f"_tailrace/log/{version:020d}.json"


def checkpoint_path(kit: Kit, version: int) -> Path:
    return kit.root / f"_tailrace/log/{version:020d}.checkpoint.json"


def log_names(kit: Kit) -> list[str]:
    return sorted(path.name.lstrip("0") for path in (kit.root / "_tailrace/log").iterdir())


def with_crc(entry: dict[str, object]) -> bytes:
    line = json.dumps(entry).encode()
    return line + b'\n{"crc32c":"%08x"}\n' % crc32c(line)


def test_every_third_commit_makes_a_checkpoint_and_two_suffice(lake: ManifestTable, kit: Kit) -> None:
    for version in range(7):
        advance(lake, version, version + 1)
    assert log_names(kit) == [
        "3.checkpoint.json",
        "4.json",
        "5.json",
        "6.checkpoint.json",
        "6.json",
        "7.json",
    ]
    assert ManifestTable(kit.root).snapshot().ends == {ORDERS: 7}


def test_a_reader_that_lags_behind_the_checkpoints_catches_up(lake: ManifestTable, kit: Kit) -> None:
    reader = ManifestTable(kit.root)
    kit.archive(lake, 0, 1)
    reader.snapshot()
    for version in range(1, 12):
        kit.archive(lake, version, version + 1)
    assert reader.snapshot() == lake.snapshot()


def test_without_its_newest_checkpoint_the_log_says_the_same(lake: ManifestTable, kit: Kit) -> None:
    for version in range(8):
        kit.archive(lake, version, version + 1)
    os.unlink(checkpoint_path(kit, 6))
    assert ManifestTable(kit.root).snapshot() == lake.snapshot()


def test_a_missing_commit_is_an_error_that_names_it(lake: ManifestTable, kit: Kit) -> None:
    for version in range(3):
        advance(lake, version, version + 1)
    os.unlink(checkpoint_path(kit, 3))
    os.unlink(entry_path(kit, 2))
    with pytest.raises(StorageError, match=r"0002\.json: .*missing, and 3 is there"):
        ManifestTable(kit.root).snapshot()


def test_a_newest_commit_that_vanishes_is_noticed_by_who_saw_it(lake: ManifestTable, kit: Kit) -> None:
    advance(lake, 0, 1)
    advance(lake, 1, 2)
    os.unlink(entry_path(kit, 2))
    with pytest.raises(StorageError, match=r"0002\.json: .*was there, and is not any more"):
        lake.snapshot()


def test_a_visible_file_that_the_log_does_not_know_stops_the_commit(lake: ManifestTable, kit: Kit) -> None:
    kit.archive(lake, 0, 10)
    os.unlink(entry_path(kit, 1))
    with pytest.raises(StorageError, match="the log of the lake does not know it"):
        kit.archive(ManifestTable(kit.root), 0, 10)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"end":10', b'"end":11'),
        lambda data: data.split(b"\n")[0],
        lambda data: data.split(b"\n")[0] + b'\n{"crc32c":"00000000"}\n',
        lambda data: data + data,
        lambda data: b"\xff" + data[1:],
        lambda data: b"[1,2]\n" + data.split(b"\n")[1] + b"\n",
    ],
)
def test_a_damaged_commit_is_an_error_that_names_it(
    lake: ManifestTable, kit: Kit, damage: Callable[[bytes], bytes]
) -> None:
    kit.archive(lake, 0, 10)
    path = entry_path(kit, 1)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageError, match=r"0001\.json: the log of the lake is damaged"):
        ManifestTable(kit.root).snapshot()


def test_no_single_flipped_bit_of_a_commit_goes_unnoticed(lake: ManifestTable, kit: Kit) -> None:
    kit.archive(lake, 0, 10)
    path = entry_path(kit, 1)
    data = path.read_bytes()
    for position in range(0, len(data) - 1, 7):  # the last byte is the line feed, tested above
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(StorageError, match=r"0001\.json"):
            ManifestTable(kit.root).snapshot()


def test_a_damaged_checkpoint_is_an_error_that_names_it(lake: ManifestTable, kit: Kit) -> None:
    for version in range(3):
        advance(lake, version, version + 1)
    path = checkpoint_path(kit, 3)
    path.write_bytes(path.read_bytes().replace(b'"end":3', b'"end":4'))
    with pytest.raises(StorageError, match=r"0003\.checkpoint\.json: .*checksum"):
        ManifestTable(kit.root).snapshot()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "says that it is version 2"),
        ({"version": "1"}, "Expected `int`"),
        ({"remove": ["topic=x/dt=2026-01-01/gone.parquet"]}, "cannot follow on the one before"),
        ({"advances": [{"topic": "orders", "partition": 0, "start": 9, "end": 1}]}, "cannot follow"),
        ({"advances": [{"topic": "orders"}]}, "missing required field"),
        ({"add": [{"file": {}, "staged": ""}]}, "missing required field"),
    ],
)
def test_a_commit_that_cannot_be_is_an_error_that_names_it(
    lake: ManifestTable, kit: Kit, change: dict[str, object], reason: str
) -> None:
    advance(lake, 0, 1)
    path = entry_path(kit, 1)
    entry = json.loads(path.read_bytes().split(b"\n")[0])
    path.write_bytes(with_crc({**entry, **change}))
    with pytest.raises(StorageError, match=rf"0001\.json: .*{reason}"):
        ManifestTable(kit.root).snapshot()


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../../../../etc/passwd"},
        {"path": "topic=orders/dt=2026-09-22/p00000-00000000000000000000-00000000000000000008.parquet"},
        {"rows": 0},
        {"rows": 11},
        {"bytes": -1},
        {"topic": "other"},
        {"min_timestamp_us": 1 << 62},
    ],
)
def test_a_commit_whose_file_cannot_be_is_refused(
    lake: ManifestTable, kit: Kit, change: dict[str, object]
) -> None:
    kit.archive(lake, 0, 10)
    path = entry_path(kit, 1)
    entry = json.loads(path.read_bytes().split(b"\n")[0])
    entry["add"][0]["file"].update(change)
    path.write_bytes(with_crc(entry))
    with pytest.raises(StorageError, match=r"0001\.json: the log of the lake is damaged"):
        ManifestTable(kit.root).snapshot()


def test_a_newer_format_is_refused_and_an_unknown_field_is_not(lake: ManifestTable, kit: Kit) -> None:
    advance(lake, 0, 1)
    path = entry_path(kit, 1)
    entry = json.loads(path.read_bytes().split(b"\n")[0])
    path.write_bytes(with_crc({**entry, "mood": "fine"}))
    assert ManifestTable(kit.root).snapshot().ends == {ORDERS: 1}
    path.write_bytes(with_crc({**entry, "v": 2}))
    with pytest.raises(StorageError, match=r"format 2, this program knows up to 1.*newer Tailrace"):
        ManifestTable(kit.root).snapshot()


def test_half_written_temporaries_are_no_commits_and_are_cleared(lake: ManifestTable, kit: Kit) -> None:
    advance(lake, 0, 1)
    torn = kit.root / "_tailrace/log/_new-0123"
    torn.write_bytes(entry_path(kit, 1).read_bytes()[:20])
    assert ManifestTable(kit.root).snapshot().version == 1
    lake.recover()
    assert not torn.exists()


def test_a_number_is_given_once_even_without_the_lock(lake: ManifestTable, kit: Kit) -> None:
    entry = Entry(version=1, operation="x", at_ms=0, add=[], remove=[], advances=[], bad=[])
    log = TableLog(kit.root)
    assert log.append(entry, on_step=lambda _: None)
    assert not log.append(entry, on_step=lambda _: None)
    assert log_names(kit) == ["1.json"]


def test_a_writer_whose_number_is_taken_tries_the_next(lake: ManifestTable, kit: Kit) -> None:
    def intrude(step: str) -> None:
        if step == "written" and not entry_path(kit, 1).exists():
            other = Entry(
                version=1,
                operation="other",
                at_ms=0,
                add=[],
                remove=[],
                advances=[Advance(topic="orders", partition=9, start=0, end=5)],
                bad=[],
            )
            entry_path(kit, 1).write_bytes(write_entry(other))

    snapshot = lake.commit(kit.addition(0, 10), on_step=intrude)
    assert (snapshot.version, snapshot.ends) == (2, {ORDERS: 10, TopicPartition("orders", 9): 5})
    assert kit.offsets(snapshot.files) == list(range(10))


@pytest.mark.parametrize("step", ["staged", "written"])
def test_a_commit_that_died_before_it_was_logged_never_was(lake: ManifestTable, kit: Kit, step: str) -> None:
    with pytest.raises(Killed):
        lake.commit(kit.addition(0, 10), on_step=killing_at(step))
    again = ManifestTable(kit.root)
    again.recover()
    assert (again.snapshot().files, kit.visible()) == ((), [])
    assert kit.offsets(kit.archive(again, 0, 10).files) == list(range(10))


@pytest.mark.parametrize(("step", "turn"), [("logged", 1), ("placed", 1), ("placed", 2), ("moved", 1)])
def test_a_commit_that_died_after_it_was_logged_is_finished(
    lake: ManifestTable, kit: Kit, step: str, turn: int
) -> None:
    change = kit.addition(0, 10, file_bytes_max=1)
    change = Change(
        operation="archive",
        add=[*change.add, *kit.addition(10, 20).add],
        advances=[Advance(topic="orders", partition=0, start=0, end=20)],
    )
    with pytest.raises(Killed):
        lake.commit(change, on_step=killing_at(step, turn=turn))
    again = ManifestTable(kit.root)
    assert kit.offsets(again.snapshot().files) == list(range(20))  # even before it is recovered
    again.recover()
    assert kit.visible() == sorted(file.path for file in again.snapshot().files)
    assert kit.offsets(again.snapshot().files) == list(range(20))
    assert list(kit.root.rglob("*.staged")) == []


@pytest.mark.parametrize(
    ("step", "turn"), [("logged", 1), ("removed", 1), ("removed", 2), ("placed", 1), ("moved", 1)]
)
def test_a_compaction_that_died_is_finished_by_the_next_commit(
    lake: ManifestTable, kit: Kit, step: str, turn: int
) -> None:
    kit.archive(lake, 0, 10)
    before = kit.archive(lake, 10, 20)
    with pytest.raises(Killed):
        lake.commit(kit.compaction(before.files), on_step=killing_at(step, turn=turn))
    assert kit.offsets(before.files) == list(range(20))
    after = kit.archive(ManifestTable(kit.root), 20, 30)
    assert kit.visible() == sorted(file.path for file in after.files)
    assert kit.offsets(after.files) == list(range(30))
    assert kit.offsets(before.files) == list(range(20))


def test_the_folders_of_dead_runs_go_only_after_their_commits_are_finished(
    lake: ManifestTable, kit: Kit
) -> None:
    with Staging(kit.root) as staging:
        written = kit.write(staging.path, kit.pieces(0, 10))
        change = Change(
            operation="archive",
            add=written.files,
            advances=[Advance(topic="orders", partition=0, start=0, end=10)],
        )
        with pytest.raises(Killed):
            lake.commit(change, on_step=killing_at("logged"))
    ManifestTable(kit.root).recover()
    assert kit.offsets(lake.snapshot().files) == list(range(10))


def test_a_name_in_use_again_is_not_taken_away_by_an_old_commit(lake: ManifestTable, kit: Kit) -> None:
    first = kit.archive(lake, 0, 10)
    lake.commit(Change(operation="retain", remove=first.files))
    lake.expire(older_than_h=0)
    written = kit.stage(0, 10)
    kit.archive(lake, 10, 20, partition=1)  # the third commit, so that nothing was checkpointed before
    os.unlink(checkpoint_path(kit, 3))
    other = [file for file in lake.snapshot().files if file.partition == 1]
    lake.commit(Change(operation="restore", add=written.files, remove=other))
    again = ManifestTable(kit.root)
    again.recover()  # reads the commit that removed the name, after the one that gave it back
    assert kit.offsets(again.snapshot().files) == list(range(10))
    assert kit.visible() == [first.files[0].path]


def test_a_committed_file_that_is_nowhere_is_an_error_that_names_it(lake: ManifestTable, kit: Kit) -> None:
    snapshot = kit.archive(lake, 0, 10)
    os.unlink(kit.root / snapshot.files[0].path)
    with pytest.raises(StorageError, match=r"p00000-.*a file of the table is missing"):
        ManifestTable(kit.root).recover()
    with pytest.raises(StorageError, match="not in the lake any more"):
        kit.offsets(snapshot.files)


def test_a_lock_that_is_never_released_is_an_error_in_the_end(lake: ManifestTable, kit: Kit) -> None:
    with (
        hold_lock(kit.root / LOCK),
        pytest.raises(StorageError, match=r"another process has held it for 0.05 s"),
        hold_lock(kit.root / LOCK, timeout_s=0.05),
    ):
        pytest.fail("two hold one lock")


def test_reading_writes_nothing(lake: ManifestTable, kit: Kit) -> None:
    kit.archive(lake, 0, 10)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in kit.root.rglob("*"))
    reader = ManifestTable(kit.root)
    kit.offsets(reader.snapshot().files)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in kit.root.rglob("*")) == before
