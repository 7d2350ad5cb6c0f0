"""`tailrace log` over a small data directory of the real engine: what is shown, and the exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace.cli.main import main
from tailrace.cluster.rebuild import apply_rebuild, plan_rebuild
from tailrace.model import Epoch, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage

TOPIC = UUID("6f1c23456789abcdef0123456789abcd")
OTHER = UUID("6f1cffffffffffffffffffffffffffff")
PARTITION = f"{TOPIC.hex}-0-1"
SEGMENT = f"{PARTITION}/{0:020d}.log"


async def write(path: Path, *, third: int = 10) -> None:
    config = DirectoryConfig(
        journal_file_bytes=64 * 1024, journal_bytes_max=1 << 20, round_bytes_max=16 * 1024
    )
    storage = await SegmentStorage.open(path, config=config)
    for topic_id, partition in ((TOPIC, 0), (TOPIC, 1), (TOPIC, third), (OTHER, 0)):
        log = await storage.create(PartitionId(topic_id, partition), LogConfig(segment_bytes=1000))
        for _ in range(9):
            batch = build_batch([(1_700_000_000_000, b"k", bytes(100), ())])
            log.append(read_batch(batch), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
    await storage.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "data"
    asyncio.run(write(path))
    return path


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


@pytest.fixture(scope="module")
def served_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with metadata that knows its logs, as a broker leaves it."""
    path = tmp_path_factory.mktemp("cli") / "data"
    asyncio.run(write(path, third=2))
    apply_rebuild(plan_rebuild(path, now_ms=0))
    return path


@pytest.fixture
def served(served_template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(served_template, tmp_path / "data"))


def damage(data: Path) -> None:
    content = bytearray((data / SEGMENT).read_bytes())
    content[300] ^= 4
    (data / SEGMENT).write_bytes(content)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# ---- inspect


def test_inspect_shows_a_section_for_everything(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(data)]) == 0
    shown = capsys.readouterr().out
    for word in ("Journal", "Partitions", "Segments", "Snapshots", "LSN", SEGMENT, str(TOPIC), "sealed"):
        assert word in shown
    for word in ("Problems", "Notes", "Rounds", "Batches"):
        assert word not in shown


def test_inspect_as_json_is_one_object(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(data), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoint"]["partitions"] == 4
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 10, 0]
    assert sum(segment["batches"] for segment in found["partitions"][0]["segments"]) == 9
    assert found["problems"] == []
    assert len(found["journal"][0]["journal_id"]) == 16
    assert "batches" not in found
    assert "rounds" not in found


def test_inspect_as_json_lines_is_one_object_per_thing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "inspect", str(data), "-o", "jsonl"]) == 0
    kinds = [line["row"] for line in lines(capsys)]
    assert kinds[:3] == ["directory", "checkpoint", "journal_file"]
    assert {*kinds} == {"directory", "checkpoint", "journal_file", "partition", "segment", "snapshot"}
    assert kinds.count("partition") == 4


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_inspect_lists_batches_when_asked(
    data: Path, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    assert main(["log", "inspect", str(data), "--batches", "-o", output_format]) == 0
    shown = capsys.readouterr().out
    if output_format == "json":
        assert len(json.loads(shown)["batches"]) == 36
    elif output_format == "jsonl":
        found = [json.loads(line) for line in shown.splitlines()]
        assert len([line for line in found if line["row"] == "batch" and line["crc_ok"]]) == 36
    else:
        assert shown.partition("Batches")[2].count(".log") == 36


@pytest.mark.parametrize("output_format", ["table", "json", "jsonl"])
def test_inspect_lists_rounds_when_asked(
    data: Path, capsys: pytest.CaptureFixture[str], output_format: str
) -> None:
    assert main(["log", "inspect", str(data), "--journal", "-o", output_format]) == 0
    shown = capsys.readouterr().out
    if output_format == "json":
        rounds = json.loads(shown)["rounds"]
        assert sum(len(each["entries"]) for each in rounds) == 40
    elif output_format == "jsonl":
        found = [json.loads(line) for line in shown.splitlines()]
        assert sum(len(line["entries"]) for line in found if line["row"] == "round") == 40
    else:
        assert shown.partition("Rounds")[2].count("create life") == 4


def test_inspect_reports_damage_and_succeeds(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "CHECKPOINT").write_bytes(b"nonsense")
    assert main(["log", "inspect", str(data)]) == 0
    problems = capsys.readouterr().out.partition("Problems")[2]
    assert "CHECKPOINT" in problems
    assert "takes the copy" in problems


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("6f1c", [0, 1, 10, 0]),
        ("6f1c2", [0, 1, 10]),
        ("6F1C2-1", [1]),
        (f"{TOPIC}-10", [10]),
        (f"{TOPIC.hex}-1-2", [1]),
        (PARTITION, [0]),
    ],
)
def test_inspect_shows_the_partitions_asked_for(
    data: Path, capsys: pytest.CaptureFixture[str], text: str, partitions: list[int]
) -> None:
    assert main(["log", "inspect", str(data), "--partition", text, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["partitions"]
    assert [partition["partition"] for partition in found] == partitions


def test_inspect_takes_several_partitions(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--partition", f"{TOPIC}-1", "--partition", str(OTHER), "-o", "json"]
    assert main(["log", "inspect", str(data), *args]) == 0
    assert len(json.loads(capsys.readouterr().out)["partitions"]) == 2


@pytest.mark.parametrize("text", ["6f1c2-2", "abcd", f"{TOPIC}-0-9"])
def test_a_partition_that_is_not_there_is_not_found(
    data: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert main(["log", "inspect", str(data), "--partition", text]) == 3
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "orders", "6f1c-x", "6f1c-0-1-2", "-1"])
def test_what_is_no_partition_is_wrong_usage(
    data: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert main(["log", "inspect", str(data), "--partition", text]) == 2
    assert "TOPICID" in capsys.readouterr().err


def test_a_long_listing_is_shown_in_several_tables(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.cli.log._TABLE_ROWS_MAX", 10)
    assert main(["log", "inspect", str(data), "--batches"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Batches") == 4
    assert shown.partition("Batches")[2].count(".log") == 36


# ---- verify


def test_verify_of_a_sound_directory_succeeds(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(served)]) == 0
    shown = capsys.readouterr()
    assert "4 partitions" in shown.out
    assert "36 batches" in shown.out
    assert "all as it was written" in shown.out
    assert shown.err == ""


def test_verify_of_a_damaged_directory_fails_and_says_why(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(served)
    assert main(["log", "verify", str(served)]) == 1
    shown = capsys.readouterr()
    problems = shown.out.partition("Problems")[2]
    assert SEGMENT in problems
    assert "bytes 0 to" in problems
    assert "offsets 0 to" in problems
    assert "Restore" in problems
    assert shown.err == f"error: 1 problem found in {served}\n"


def test_verify_as_json(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(served)
    assert main(["log", "verify", str(served), "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [problem["path"] for problem in found["problems"]] == [SEGMENT]
    assert found["partitions"] == 4


def test_verify_as_json_lines(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(served)
    (served / f"stray-{PARTITION}").mkdir()
    assert main(["log", "verify", str(served), "-o", "jsonl"]) == 1
    found = lines(capsys)
    assert [line["row"] for line in found] == ["note", "problem", "verified"]
    assert (found[-1]["notes"], found[-1]["problems"]) == (1, 1)


def test_notes_alone_are_no_failure(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (served / f"stray-{PARTITION}").mkdir()
    assert main(["log", "verify", str(served)]) == 0
    assert f"stray-{PARTITION}" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_verify_shows_its_progress_on_a_terminal(
    served: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["log", "verify", str(served)]) == 0
    assert "verifying" in terminal.getvalue()
    assert "verifying" not in capsys.readouterr().out


# ---- both


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_a_missing_directory_is_not_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert main(["log", verb, str(tmp_path / "absent")]) == 3
    assert str(tmp_path / "absent") in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_a_directory_without_a_log_is_not_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    assert main(["log", verb, str(tmp_path)]) == 3
    assert "no log is kept here" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_help_says_that_nothing_is_written(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main(["log", verb, "--help"]) == 0
    assert "Nothing is written or locked" in " ".join(capsys.readouterr().out.split())
