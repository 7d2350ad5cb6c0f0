"""`tailrace pipeline files`: what it prints of lakes of each kind, and of folders that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.spark.lake.kit import Kit

from tailrace.cli.main import main


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.chdir(tmp_path)
    return Kit(root=tmp_path / "lake")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["pipeline", "files", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_paths_are_those_of_the_list_and_can_be_opened_as_they_are(
    kit: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    table = kit.open("parquet")
    kit.archive(table, 0, 10)
    kit.archive(table, 0, 7, topic="clicks")
    code, out, _ = run(capsys, "lake")
    assert code == 0
    listed = (kit.root / "_manifest/current.txt").read_text().splitlines()
    assert out.splitlines() == [f"lake/{line}" for line in listed]
    assert sum(pq.read_metadata(path).num_rows for path in out.splitlines()) == 17
    assert run(capsys, "lake", "--topic", "clicks")[1].splitlines() == [
        f"lake/{line}" for line in listed if "clicks" in line
    ]


def test_json_tells_what_each_file_has(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.archive(kit.open("parquet"), 0, 10)
    code, out, _ = run(capsys, str(kit.root), "-o", "json")
    (row,) = json.loads(out)
    path = Path(row.pop("path"))
    assert code == 0
    assert path.is_absolute()
    assert row == {
        "topic": "orders",
        "dt": "2026-09-22",
        "partition": 0,
        "first_offset": 0,
        "last_offset": 9,
        "bytes": path.stat().st_size,
    }


def test_files_of_a_delta_lake_are_named_as_its_log_has_them(
    kit: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("deltalake")
    table = kit.open("delta")
    first = kit.archive(table, 0, 10)
    table.commit(kit.compaction(first.files))
    code, out, _ = run(capsys, "lake")
    assert (code, out.splitlines()) == (0, [f"lake/{file.path}" for file in table.snapshot().files])


def test_an_older_lake_is_listed_by_its_own_names(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    table = kit.open("parquet")
    path = kit.archive(table, 0, 10).files[0].path
    (kit.root / "_manifest/current.txt").unlink()
    assert run(capsys, "lake")[:2] == (0, f"lake/{path}\n")


def test_what_is_not_there_is_named(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "nowhere")[0] == 2
    kit.archive(kit.open("parquet"), 0, 10)
    code, out, error = run(capsys, "lake", "--topic", "order")
    assert (code, out) == (3, "")
    assert "no files of topic order" in error
