"""`tailrace bench log`: its output in every format, over a report made up here and over one tiny real run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace import bench
from tailrace.bench import FULL, QUICK, LogReport, Sizes
from tailrace.bench.report import Twins
from tailrace.cli.main import main
from tailrace.model import NoSpace

TINY = replace(
    QUICK,
    runs=1,
    append_16k_bytes=1 << 20,
    append_1m_bytes=1 << 20,
    read_bytes=1 << 20,
    read_runs=1,
    group_appends=1,
    partition_rounds=1,
    bare_seconds=0.001,
    recovery_bytes=1 << 20,
    codec_seconds=0.02,
)
REPORT = LogReport(
    append_16k_ratio=0.7,
    append_1m_ratio=0.5,
    read_hot_ratio=0.9,
    group_commit_ratio=20,
    many_partitions_ratio=15,
    recovery_s_per_gib=2.5,
    encode_per_s=Twins(pure=500_000, compiled=None),
    decode_per_s=Twins(pure=700_000, compiled=None),
    machine={"cpu": "Abacus 3", "cores": 2},
    details={"recovery": {"bytes": 1}},
)


class FakeBench:
    """Stands in for the loads, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: tuple[Path, Sizes] | None = None

    def __call__(self, directory: Path, sizes: Sizes, *, note: object) -> LogReport:
        self.asked = directory, sizes
        return REPORT


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    fake = FakeBench()
    monkeypatch.setattr(bench, "run_log_bench", fake)
    return fake


def test_a_real_run_prints_one_json_object_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "QUICK", TINY)
    assert main(["bench", "log", "--quick", "--dir", str(tmp_path), "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert set(json.loads(shown.out)) == set(REPORT.as_row())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "sizes"), [([], FULL), (["--quick"], QUICK)])
def test_quick_is_a_choice_and_here_is_the_default(fake: FakeBench, options: list[str], sizes: Sizes) -> None:
    assert main(["bench", "log", *options]) == 0
    assert fake.asked == (Path(), sizes)


def test_json_carries_every_figure(fake: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT.as_row()


def test_jsonl_is_one_line(fake: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "-o", "jsonl"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == REPORT.as_row()


def lines_of(text: str) -> dict[str, str]:
    """The lines of the table by how they begin."""
    return {line.split("  ")[0]: line for line in text.splitlines() if line}


def test_a_table_shows_each_figure_beside_its_goal(
    fake: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "log"]) == 0
    shown = lines_of(capsys.readouterr().out)
    small = shown["append 16 KiB batches, against write"].split()[-5:]
    assert small == ["0.70", "at", "least", "0.60", "met"]
    large = shown["append 1 MiB batches, against write"].split()[-5:]
    assert large == ["0.50", "at", "least", "0.85", "missed"]
    recovery = shown["recovery, seconds per GiB"].split()[-5:]
    assert recovery == ["2.50", "at", "most", "4.00", "met"]
    assert shown["decode, records/s, pure"].split()[-5:] == ["700,000", "at", "least", "400,000", "met"]


def test_a_table_says_what_could_not_be_measured(fake: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log"]) == 0
    line = lines_of(capsys.readouterr().out)["decode, records/s, compiled"]
    assert "not there" in line
    assert "met" not in line
    assert "missed" not in line


def test_a_table_ends_with_the_machine_and_is_plain_without_a_terminal(
    fake: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "log"]) == 0
    shown = capsys.readouterr()
    assert "Abacus 3" in lines_of(shown.out)["cpu"]
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_on_a_terminal_there_are_marks(
    fake: FakeBench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["bench", "log"]) == 0
    shown = capsys.readouterr().out
    assert "✓" in shown
    assert "✗" in shown


def test_on_a_terminal_the_steps_are_told_on_stderr_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(_directory: Path, _sizes: Sizes, *, note: object) -> LogReport:
        assert callable(note)
        note("group commit")
        return REPORT

    monkeypatch.setattr(bench, "run_log_bench", tell)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["bench", "log", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert "group commit" in shown.err
    assert json.loads(shown.out) == REPORT.as_row()


def test_a_missing_directory_is_an_error_with_code_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "nowhere"
    assert main(["bench", "log", "--dir", str(missing), "-o", "json"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"error: No such file or directory: {missing}\n"


def test_a_file_in_place_of_a_directory_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(["bench", "log", "--dir", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("error: Not a directory")


def test_a_full_disk_is_an_error_that_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: object, **_options: object) -> LogReport:
        raise NoSpace("/data has 3 MiB free. Try: --quick")

    monkeypatch.setattr(bench, "run_log_bench", refuse)
    assert main(["bench", "log"]) == 1
    assert "Try: --quick" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["bench", "lgo"], ["bench", "log", "--fast"], ["bench", "log", "extra"]])
def test_wrong_usage_is_an_error_with_code_2(args: list[str]) -> None:
    assert main(args) == 2


@pytest.mark.parametrize("options", [[], ["-o", "json"]])
def test_a_page_is_written_beside_what_is_printed(
    fake: FakeBench, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str]
) -> None:
    path = tmp_path / "report.html"
    assert main(["bench", "log", *options]) == 0
    plain = capsys.readouterr().out
    assert main(["bench", "log", *options, "--html", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == plain
    assert shown.err == f"wrote {path}\n"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "append 16 KiB batches, against write" in text
    assert "Abacus 3" in text


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    fake: FakeBench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "nowhere" / "report.html"
    assert main(["bench", "log", "--html", str(path)]) == 3
    assert capsys.readouterr().err == f"error: No such file or directory: {path.parent}\n"
    assert fake.asked is None


def test_a_directory_is_no_page(fake: FakeBench, tmp_path: Path) -> None:
    assert main(["bench", "log", "--html", str(tmp_path)]) == 2
    assert fake.asked is None
