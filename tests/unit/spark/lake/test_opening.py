"""Opening a folder as a lake: what becomes one, what is one already, what is left alone."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.model import ConfigError, StorageError
from tailrace.spark.lake import iceberg, open_table
from tailrace.spark.lake.durable import hold_lock
from tailrace.spark.lake.layout import LOCK
from tailrace.spark.lake.marker import make_lake

FORMATS = ["parquet", "delta", "iceberg"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_a_new_folder_becomes_a_lake_and_is_found_to_be_one(tmp_path: Path, format: str) -> None:
    made = open_table(tmp_path / "a" / "lake", format=format, create=True)
    made.close()
    found = open_table(tmp_path / "a" / "lake")
    assert (found.format, found.root) == (format, tmp_path / "a" / "lake")
    assert (found.snapshot().files, found.snapshot().ends) == ((), {})
    found.close()


def test_a_new_lake_is_parquet_unless_asked_otherwise(tmp_path: Path) -> None:
    assert open_table(tmp_path / "lake", create=True).format == "parquet"


def test_an_empty_folder_may_become_a_lake(tmp_path: Path) -> None:
    assert open_table(tmp_path.as_uri(), create=True).root == tmp_path


@pytest.mark.parametrize("create", [False, True])
def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path, create: bool) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError):
        open_table(tmp_path, create=create)
    assert names(tmp_path) == ["thesis.tex"]


def test_the_refusal_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"not a lake and has files \(thesis\.tex.*empty or a new folder"):
        open_table(tmp_path, create=True)


def test_a_missing_lake_is_not_made_by_readers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no lake at .*archive --to"):
        open_table(tmp_path / "lake")
    assert names(tmp_path) == []


def test_a_file_is_not_a_lake(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        open_table(tmp_path / "lake", create=True)


@pytest.mark.parametrize("format", FORMATS)
def test_another_format_than_it_has_is_refused_with_both_names(tmp_path: Path, format: str) -> None:
    other = FORMATS[FORMATS.index(format) - 1]
    open_table(tmp_path, format=other, create=True).close()
    with pytest.raises(ConfigError, match=f"format '{other}', not '{format}'"):
        open_table(tmp_path, format=format, create=True)


def test_an_unknown_format_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'orc' is not one of parquet, delta, iceberg"):
        open_table(tmp_path, format="orc", create=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("marker", [b"", b"{", b"[]", b'{"v":1}', b"\xff\xfe"])
def test_a_damaged_marker_is_an_error_that_names_it(tmp_path: Path, marker: bytes) -> None:
    open_table(tmp_path, create=True)
    (tmp_path / "_tailrace/lake.json").write_bytes(marker)
    with pytest.raises(StorageError, match=r"lake\.json.*damaged"):
        open_table(tmp_path)


@pytest.mark.parametrize("marker", [{"v": 2, "format": "parquet"}, {"v": 1, "format": "hudi"}])
def test_a_lake_of_a_newer_program_is_refused(tmp_path: Path, marker: dict[str, Any]) -> None:
    open_table(tmp_path, create=True)
    (tmp_path / "_tailrace/lake.json").write_text(json.dumps(marker))
    with pytest.raises(StorageError, match="Use a newer Tailrace"):
        open_table(tmp_path)


def test_a_lake_whose_making_was_cut_off_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "_tailrace").mkdir()
    (tmp_path / "_tailrace/_new-1234").write_bytes(b'{"v":')
    assert open_table(tmp_path, format="parquet", create=True).format == "parquet"


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_marked_lake_without_its_log_gets_one(tmp_path: Path, format: str) -> None:
    (tmp_path / "_tailrace").mkdir()
    (tmp_path / "_tailrace/lake.json").write_text(json.dumps({"v": 1, "format": format}))
    table = open_table(tmp_path)
    assert table.snapshot().files == ()
    table.close()


@pytest.mark.parametrize(("format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_without_its_package_a_format_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, package: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'tailrace\[lake\]'"):
        open_table(tmp_path / "lake", format=format, create=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_lake_that_another_process_made_in_the_meantime_is_no_stranger(tmp_path: Path, format: str) -> None:
    open_table(tmp_path, format=format, create=True).close()
    (tmp_path / "topic=orders").mkdir()
    assert make_lake(tmp_path, "parquet") == format


def test_a_new_iceberg_catalogue_is_made_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    plain = iceberg._open_catalogue

    def looking(root: Path) -> Any:
        try:
            with hold_lock(root / LOCK, timeout_s=0):
                held.append(False)
        except StorageError:
            held.append(True)
        return plain(root)

    monkeypatch.setattr(iceberg, "_open_catalogue", looking)
    open_table(tmp_path / "lake", format="iceberg", create=True).close()
    open_table(tmp_path / "lake").close()
    assert held == [True, False], "whoever only opens it waits for nobody"


def test_iceberg_refuses_a_path_that_is_no_uri(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="# \\? %"):
        open_table(tmp_path / "100%", format="iceberg", create=True)
