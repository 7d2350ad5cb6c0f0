"""What other programs did to a Delta or an Iceberg lake: no harm is borne, harm is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.lake.kit import Kit

from tailrace.model import StorageError, TopicPartition
from tailrace.spark.lake import Conflict, open_table

ORDERS = TopicPartition("orders", 0)


def append_delta(kit: Kit, version: int, *actions: dict[str, Any]) -> None:
    """A commit that another engine made."""
    path = kit.root / f"_delta_log/{version:020d}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def intruding(kit: Kit, version: int, action: dict[str, Any]) -> Callable[[str], None]:
    def on_step(step: str) -> None:
        if step == "written" and not (kit.root / f"_delta_log/{version:020d}.json").exists():
            append_delta(kit, version, action)

    return on_step


def test_a_delta_commit_goes_on_top_of_a_harmless_one(kit: Kit) -> None:
    table = kit.open("delta")
    harmless = {"commitInfo": {"timestamp": 1, "operation": "SET SOMETHING", "operationParameters": {}}}
    snapshot = table.commit(kit.addition(0, 10), on_step=intruding(kit, 1, harmless))
    assert (snapshot.version, snapshot.ends) == (2, {ORDERS: 10})
    assert kit.offsets(snapshot.files) == list(range(10))


def test_a_delta_commit_that_was_overtaken_is_a_conflict(kit: Kit) -> None:
    table = kit.open("delta")
    kit.archive(table, 0, 10)
    moved_on = {"txn": {"appId": "tailrace/orders/0", "version": 15, "lastUpdated": 1}}
    with pytest.raises(Conflict, match="ends at offset 15, this change begins at 10"):
        table.commit(kit.addition(10, 20), on_step=intruding(kit, 2, moved_on))
    assert kit.offsets(open_table(kit.root).snapshot().files) == list(range(10))


def test_a_delta_file_that_is_not_ours_is_an_error_that_names_it(kit: Kit) -> None:
    kit.open("delta")
    append_delta(
        kit,
        1,
        {
            "add": {
                "path": "topic=orders/dt=2026-09-22/part-0001.parquet",
                "partitionValues": {"topic": "orders", "dt": "2026-09-22"},
                "size": 10,
                "modificationTime": 1,
                "dataChange": True,
            }
        },
    )
    with pytest.raises(StorageError, match=r"part-0001\.parquet.*not Tailrace's.*pipeline run compact"):
        open_table(kit.root).snapshot()


def test_a_delta_table_that_asks_for_more_than_we_write_is_refused(kit: Kit) -> None:
    kit.open("delta")
    append_delta(kit, 1, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}})
    with pytest.raises(StorageError, match="writer version 4, this one writes up to 2"):
        open_table(kit.root).snapshot()


def test_an_iceberg_lake_that_was_moved_says_so(kit: Kit, tmp_path: Path) -> None:
    table = kit.open("iceberg")
    kit.archive(table, 0, 10)
    table.close()
    os.symlink(kit.root, tmp_path / "elsewhere")
    moved = open_table(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"the lake was moved to .*elsewhere"):
        moved.snapshot()
    moved.close()


def test_an_iceberg_commit_of_another_program_in_between_is_a_conflict(kit: Kit) -> None:
    table, other = kit.open("iceberg"), kit.open("iceberg")
    change, foreign = kit.addition(0, 10), kit.addition(0, 5, partition=1)

    def intrude(step: str) -> None:
        if step == "moved":  # past our lock, as a program would that does not know it
            other._append(foreign, version=1)  # type: ignore[attr-defined]

    other.snapshot()
    with pytest.raises(Conflict, match="another program changed the Iceberg table"):
        table.commit(change, on_step=intrude)
    assert ORDERS not in table.snapshot().ends
    table.close()
    other.close()
