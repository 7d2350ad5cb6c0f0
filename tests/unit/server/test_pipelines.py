"""Pipelines beside a node: what is planned, and a process that stands in for theirs, followed to its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.server import pipelines
from tailrace.server.configuration import check_file, read_config
from tailrace.server.pipelines import PipelinePlan, PipelineProcess, plan_pipelines
from tailrace.server.screen import live_text
from tailrace.server.stats import Stats
from tailrace.spark.pipelines import session

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can run it."""
    monkeypatch.setattr(session, "check_spark", lambda **_options: "4.3.0")


# ---- planning


def test_the_demo_is_archived_where_nothing_is_declared(tmp_path: Path) -> None:
    configuration = read_config(flags={"storage.data_dir": "here"}, environment={}, directory=tmp_path)
    plan = plan_pipelines(configuration, demo=True)
    assert plan.arguments[:5] == ("archive", "--topic", "orders,payments,clicks", "--to", "here/lake")
    assert plan.summary == "archive to here/lake"


def test_what_is_declared_runs(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text("[pipelines.night]\nrun = 'archive'\ntopic = 't'\nto = 'x'\n")
    plan = plan_pipelines(read_config(environment={}, file=file), demo=True)
    assert plan == PipelinePlan(arguments=("--all", "--config", str(file)), summary="night")


def test_nothing_to_run_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to run: declare \[pipelines.NAME\]"):
        plan_pipelines(read_config(environment={}, directory=tmp_path), demo=False)


def test_a_machine_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(**_options: object) -> str:
        raise ConfigError("Spark needs Java")

    monkeypatch.setattr(session, "check_spark", check)
    with pytest.raises(ConfigError, match="Spark needs Java"):
        plan_pipelines(read_config(environment={}, directory=tmp_path), demo=True)


# ---- tailrace.toml


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pipelines = 5\n", "pipelines must be tables: write [pipelines.NAME]"),
        ("[pipelines]\nx = 5\n", "pipelines.x must be a table"),
        (
            "[pipelines.x]\nrun = 'archiv'\n",
            "[pipelines.x]: run = 'archiv' is not a pipeline: did you mean archive?",
        ),
    ],
)
def test_a_wrong_table_is_refused_by_a_node_too(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "t.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_config(environment={}, file=file)
    assert str(error.value).startswith(f"{file}: {problem}")
    assert check_file(file) == [str(error.value)]


def test_validate_looks_into_the_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")
    file = tmp_path / "t.toml"
    file.write_text("[server]\nkafka_port = 1\n[pipelines.archive]\ntopic = 't'\nto = 'x'\nbatchrows = 1\n")
    assert check_file(file) == [
        f"{file}: [pipelines.archive]: batchrows is not a setting of archive. Did you mean batch_rows?"
    ]
    file.write_text("[pipelines.archive]\ntopic = 't'\nto = 'x'\nbatch_rows = 1\n")
    assert check_file(file) == []


def test_a_node_does_not_look_into_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[pipelines.archive]\nwhatever = 1\n")
    assert read_config(environment={}, file=file).pipelines == {"archive": {"whatever": 1}}


# ---- the process


def process(code: str) -> PipelineProcess:
    made = PipelineProcess(PipelinePlan(arguments=(), summary=""), "127.0.0.1:1")
    made._command = (sys.executable, "-c", code)
    return made


def progress(**fields: object) -> str:
    return json.dumps({"name": "archive", "rows": 12_345, "rows_per_s": 1_230.4, "lag": 40, **fields})


def test_progress_becomes_words_and_nonsense_is_passed_over() -> None:
    made = process("")
    assert made.text == "pipelines starting"
    for line in (b"", b"nonsense\n", b"[1]\n", b'{"done": true}\n', b"\xff\n"):
        made.take_line(line)
    assert made.text == "pipelines starting"
    made.take_line(progress().encode())
    assert made.text == "archive 12,345 rows, 1,230/s, lag 40"
    made.take_line(progress(name="night\x1b", rows=1, lag=None, rows_per_s=None).encode())
    assert made.text == "archive 12,345 rows, 1,230/s, lag 40 | night\\x1b 1 rows, ?/s"


def test_a_pipeline_that_fails_among_others_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = process("")
    made.take_line(progress().encode())
    made.take_line(progress(name="tidy", rows=1).encode())
    made.take_line(json.dumps({"name": "tidy", "state": "failed", "error": "no\nroom"}).encode())
    assert made.text == "archive 12,345 rows, 1,230/s, lag 40 | tidy failed"
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warned == ["pipeline tidy failed: no\\nroom"]


def test_the_words_are_a_part_of_the_live_line() -> None:
    stats = Stats(records_in=1, bytes_in=1, records_out=1, bytes_out=1, lag=0, produce_p99_ms=None)
    assert live_text(stats, [1.0], beside="archive 5 rows").endswith("| p99 - | archive 5 rows")
    assert live_text(stats, [1.0]).endswith("| p99 -")


def test_a_process_that_fails_is_told_once_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    said = "starting Spark\nerror: no topic\nbye\n"
    made = process(f"import sys; print({progress()!r}); sys.stderr.write({said!r}); sys.exit(1)")
    asyncio.run(asyncio.wait_for(made.run(), DEADLINE_S))
    assert made.text == "pipelines failed"
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert errors == ["the pipelines ended, the broker goes on: no topic"]


def test_a_process_that_says_nothing_is_told_by_its_code(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(asyncio.wait_for(process("import os; os._exit(7)").run(), DEADLINE_S))
    assert "exit code 7" in caplog.text


@pytest.mark.parametrize(
    "first",
    [
        "os.kill(os.getpid(), 9)",
        """print('{"done": true, "runs": [{"retriable": true}]}'); sys.exit(1)""",
    ],
    ids=["killed", "an error that may pass"],
)
def test_a_process_that_may_do_better_starts_again(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines, "_RESTART_FIRST_S", 0.0)
    mark = tmp_path / "mark"
    made = process(
        "import os, sys, pathlib\n"
        f"mark = pathlib.Path({str(mark)!r})\n"
        f"if not mark.exists():\n    mark.touch()\n    {first}"
    )
    asyncio.run(asyncio.wait_for(made.run(), DEADLINE_S))
    assert made.text == "pipelines finished"
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(errors) == 1
    assert "the broker goes on; they start again in 0 s" in errors[0]


def test_a_process_that_finishes_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    made = process("print('x' * 200_000)")  # longer than a line is by default
    asyncio.run(asyncio.wait_for(made.run(), DEADLINE_S))
    assert made.text == "pipelines finished"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


POLITE = """
import os, signal, sys
def stop(*_):
    print('x' * 1_000_000, flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print('{"name": "a", "rows": %d, "rows_per_s": 0}' % os.getpid(), flush=True)
signal.pause()
signal.pause()
"""
STUBBORN = POLITE.replace("sys.exit(0)", "pass")


async def run_and_cancel(made: PipelineProcess) -> int:
    """Cancel it when it has told something; its pid."""
    told = asyncio.Event()
    take = made.take_line

    def noted(line: bytes) -> None:
        take(line)
        told.set()

    made.take_line = noted  # type: ignore[method-assign]
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(DEADLINE_S):
        await told.wait()
        running.cancel()
        await asyncio.wait({running})
    assert running.cancelled()
    return int(made.text.split()[1].replace(",", ""))


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_stopped_with_the_broker() -> None:
    assert not is_there(asyncio.run(run_and_cancel(process(POLITE))))


def test_one_that_does_not_stop_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines, "STOP_DEADLINE_S", 0.2)
    assert not is_there(asyncio.run(run_and_cancel(process(STUBBORN))))
    assert "did not stop within" in caplog.text


def test_it_is_the_command_line_that_runs() -> None:
    made = PipelineProcess(PipelinePlan(arguments=("--all",), summary=""), "h:1")
    assert made._command[1:] == (
        *("-m", "tailrace", "pipeline", "run", "--all"),
        *("--bootstrap", "h:1", "--with-parent", "-o", "jsonl"),
    )
