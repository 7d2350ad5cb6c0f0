"""`_manifest/current.txt`: one version for programs that only read files, while others write and die."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from tests.golden.opening import DATA_0_1, unpack
from tests.unit.spark.lake.kit import Kit

from tailrace.spark.lake import Change, DataFile, Staging, Table, open_table
from tailrace.spark.lake.current import read_current
from tailrace.spark.lake.manifest import ManifestTable

GUIDE = (Path(__file__).parents[4] / "docs/guide/spark.md").read_text(encoding="utf-8")
COUNT = 400
GRACE_S = 5.0


class Killed(BaseException):
    """Stands for the end of the process."""


def lines(root: Path) -> list[Path]:
    """The files that current.txt names, as a program without Tailrace finds them."""
    return [root / line for line in (root / "_manifest/current.txt").read_text().splitlines()]


def offsets(files: Sequence[Path]) -> list[int]:
    return sorted(offset for path in files for offset in pq.read_table(path)["offset"].to_pylist())


def by_duckdb(root: Path) -> list[int]:
    """As docs/guide/spark.md shows it."""
    with duckdb.connect() as database:
        database.execute(
            f"SET VARIABLE files = (SELECT list('{root}/' || path) FROM read_csv("
            f"'{root}/_manifest/current.txt', header = false, columns = {{'path': 'VARCHAR'}}))"
        )
        found = database.sql(
            "SELECT \"offset\" FROM read_parquet(getvariable('files'), hive_partitioning = true)"
            " WHERE topic = 'orders' ORDER BY 1"
        )
        return [offset for (offset,) in found.fetchall()]


def by_polars(root: Path) -> list[int]:
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    found = polars.scan_parquet(lines(root), hive_partitioning=True).filter(polars.col("topic") == "orders")
    return list(found.sort("offset").collect()["offset"])


def link_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_manifest/files").rglob("*") if path.is_file())


def test_a_commit_lists_its_files_and_a_listing_of_folders_shows_each_once(kit: Kit) -> None:
    table = kit.open("parquet")
    kit.archive(table, 0, 10)
    kit.archive(table, 10, 20)
    assert offsets(lines(kit.root)) == list(range(20))
    assert read_current(kit.root) == sorted(file.path for file in table.snapshot().files)
    assert kit.visible() == read_current(kit.root)
    assert by_duckdb(kit.root) == by_polars(kit.root) == list(range(20))


def test_the_program_of_the_guide_reads_one_version(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    kit.archive(kit.open("parquet"), 0, 10)
    found = re.search(
        r"Save this as `versions.py`:\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    monkeypatch.chdir(kit.root.parent)
    exec(compile(found[1], "versions.py", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "[('orders', 10)] by DuckDB\n10 by Polars\n"


def test_a_lake_without_files_has_an_empty_list(kit: Kit) -> None:
    kit.open("parquet").recover()
    assert lines(kit.root) == []


def test_files_of_an_older_list_stay_until_their_grace_is_over(kit: Kit) -> None:
    table = kit.open("parquet")
    kit.archive(table, 0, 10)
    older = kit.archive(table, 10, 20)
    listed = lines(kit.root)
    table.commit(kit.compaction(older.files))
    assert len(lines(kit.root)) == 1
    assert offsets(lines(kit.root)) == offsets(listed) == list(range(20))
    table.expire(older_than_h=1)
    assert offsets(listed) == list(range(20))
    table.expire(older_than_h=0)
    assert not any(path.exists() for path in listed)
    assert offsets(lines(kit.root)) == list(range(20))
    assert len(link_names(kit.root)) == 1


def test_a_day_that_is_dropped_leaves_the_list_and_its_folders_go(kit: Kit) -> None:
    table = kit.open("parquet")
    first = kit.archive(table, 0, 10)
    table.commit(Change(operation="retain", remove=first.files))
    table.expire(older_than_h=0)
    assert lines(kit.root) == []
    assert list((kit.root / "_manifest").iterdir()) == [kit.root / "_manifest/current.txt"]


def test_a_link_of_an_older_file_does_not_stand_for_a_new_one_of_its_name(kit: Kit) -> None:
    table = kit.open("parquet")
    path = kit.archive(table, 0, 10).files[0].path
    link = kit.root / f"_manifest/files/{path}.link"
    shutil.rmtree(kit.root / "_manifest")
    link.parent.mkdir(parents=True)
    link.write_text("another file")
    table.recover()
    assert os.path.samefile(link, kit.root / path)
    assert offsets(lines(kit.root)) == list(range(10))
    assert [each.name for each in link.parent.iterdir()] == [link.name]


@pytest.mark.parametrize("spoil", ["delete", "damage", "no links"])
def test_what_somebody_spoiled_is_written_again(kit: Kit, spoil: str) -> None:
    kit.archive(kit.open("parquet"), 0, 10)
    if spoil == "delete":
        shutil.rmtree(kit.root / "_manifest")
    elif spoil == "damage":
        (kit.root / "_manifest/current.txt").write_text("../../etc/passwd\n")
    else:
        shutil.rmtree(kit.root / "_manifest/files")
    kit.archive(kit.open(), 10, 20)
    assert offsets(lines(kit.root)) == list(range(20))


def test_a_file_that_somebody_deleted_is_left_out_and_named(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    kit.open("parquet")
    gone = kit.archive(ManifestTable(kit.root, checkpoint_every=1), 0, 10).files[0]
    shutil.rmtree(kit.root / "_manifest")
    os.unlink(kit.root / gone.path)
    with caplog.at_level(logging.WARNING):
        kit.archive(kit.open(), 10, 20)
    assert offsets(lines(kit.root)) == list(range(10, 20))
    assert gone.path in caplog.text


def test_a_lake_of_version_0_1_gains_the_list_with_its_next_commit(tmp_path: Path) -> None:
    kit = Kit(root=unpack(DATA_0_1 / "lake.tar.xz", tmp_path))
    table = open_table(kit.root)
    before = table.snapshot()
    assert not (kit.root / "_manifest").exists()
    end = before.ends[before.files[0].tp]
    kit.archive(table, end, end + 10, partition=before.files[0].partition)
    assert read_current(kit.root) == sorted(file.path for file in table.snapshot().files)
    assert len(lines(kit.root)) == len(before.files) + 1
    assert sum(pq.read_metadata(path).num_rows for path in lines(kit.root)) == 10 + sum(
        file.rows for file in before.files
    )


STEPS = ["staged", "written", "logged", "removed", "placed", "moved", "linked", "listed"]


@pytest.mark.parametrize("step", STEPS)
def test_a_compaction_killed_at_any_step_leaves_a_list_of_one_version(kit: Kit, step: str) -> None:
    table = kit.open("parquet")
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)

    def die(now: str) -> None:
        if now == step:
            raise Killed

    with pytest.raises(Killed):
        table.commit(kit.compaction(before.files), on_step=die)
    assert offsets(lines(kit.root)) == list(range(20))  # for readers that come before any writer
    assert len(lines(kit.root)) == (1 if step == "listed" else 2)
    after = open_table(kit.root)
    after.recover()
    assert read_current(kit.root) == sorted(file.path for file in after.snapshot().files)
    assert offsets(lines(kit.root)) == list(range(20))
    kit.archive(after, 20, 30)
    assert offsets(lines(kit.root)) == list(range(30))
    assert list((kit.root / "_manifest").rglob("_new-*")) == []


# ---- readers beside a compaction


def split(kit: Kit, files: Sequence[DataFile]) -> Change:
    """The change that makes many small files of a few: the next compaction has work again."""
    with Staging(kit.root) as staging:
        parts = [
            kit.write(staging.path, kit.pieces(first, first + 40)).files for first in range(0, COUNT, 40)
        ]
    return Change(operation="compact", add=[file for part in parts for file in part], remove=files)


@contextmanager
def compacting(kit: Kit, table: Table) -> Iterator[Callable[[], int]]:
    """A thread that compacts and splits the lake until the block ends; gives how often it did."""
    stop, failed, commits = threading.Event(), list[BaseException](), [0]

    def work() -> None:
        try:
            while not stop.is_set():
                files = table.snapshot().files
                table.commit(split(kit, files) if len(files) == 1 else kit.compaction(files))
                table.expire(older_than_h=GRACE_S / 3600)
                commits[0] += 1
        except BaseException as error:
            failed.append(error)
            commits[0] = 1 << 30  # nobody waits for more

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: commits[0]
    finally:
        stop.set()
        thread.join()
    assert not failed


def check_reads(kit: Kit, read: Callable[[Path], list[int]], *, reads: int, commits: int) -> None:
    """At least so many reads, while at least so many commits move the files."""
    table = kit.open("parquet")
    kit.archive(table, 0, COUNT)
    with compacting(kit, table) as committed:
        while reads > 0 or committed() < commits:
            assert read(kit.root) == list(range(COUNT))
            reads -= 1


@pytest.mark.parametrize("read", [by_duckdb, by_polars])
def test_readers_of_the_list_never_fail_while_a_compaction_moves_files(
    kit: Kit, read: Callable[[Path], list[int]]
) -> None:
    check_reads(kit, read, reads=40, commits=3)


@pytest.mark.heavy
@pytest.mark.parametrize("read", [by_duckdb, by_polars])
def test_a_thousand_reads_of_the_list_never_fail_while_compactions_move_files(
    kit: Kit, read: Callable[[Path], list[int]]
) -> None:
    check_reads(kit, read, reads=1_000, commits=50)


def test_a_checkpoint_is_written_after_the_list(kit: Kit) -> None:
    kit.open("parquet")
    table = ManifestTable(kit.root, checkpoint_every=1)

    def die(now: str) -> None:
        if now == "linked":
            raise Killed

    with pytest.raises(Killed):
        table.commit(kit.addition(0, 10), on_step=die)
    assert list((kit.root / "_tailrace/log").glob("*.checkpoint.json")) == []
