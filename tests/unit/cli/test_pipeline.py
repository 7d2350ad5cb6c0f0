"""`tailrace pipeline` with a made-up pipeline and no Spark, on a broker in this process: words and codes."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import tailrace
from tailrace.cli import pipeline_run
from tailrace.cli.connection import Cluster
from tailrace.cli.main import main
from tailrace.cli.output import Output
from tailrace.cli.pipeline_flag import FLAGS, Flag
from tailrace.cli.pipeline_screen import RunScreen, duration_text, progress_text
from tailrace.client.error import DataMissing
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.lake import BadRange
from tailrace.spark.lake.missing import GONE, MissingRange
from tailrace.spark.pipelines import declared, registry, session
from tailrace.spark.pipelines.heartbeat import Heartbeat
from tailrace.spark.pipelines.progress import Observer, Progress
from tailrace.spark.pipelines.registry import PIPELINES, Pipeline
from tailrace.spark.pipelines.run_topic import fetch_runs
from tailrace.spark.pipelines.runner import Outcome, Run, Runner
from tailrace.spark.pipelines.spark_settings import SparkSettings
from tailrace.wire.json.run_record import new_run

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer for the last record than a person should have to wait for it."""
    monkeypatch.setattr("tailrace.spark.pipelines.heartbeat._END_S", DEADLINE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PourConfig:
    topic: tuple[str, ...]
    bootstrap: str = "127.0.0.1:9092"
    once: bool = False
    rows: int = 5
    lake: str | None = None
    every_s: float | None = None
    ends: Literal["well", "ours", "bug", "spark", "strict", "hole"] = "well"


@dataclass(frozen=True, slots=True, kw_only=True)
class Poured:
    offsets: dict[str, dict[int, int]]
    rows: int
    jug: str
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PouredBesides(Poured):
    """Something was gone before it could be poured."""

    bad: tuple[BadRange, ...]
    missing: tuple[MissingRange, ...]


HOLE = BadRange(topic="t", partition=0, first_offset=10, last_offset=17, reason=GONE)
MISSING = (
    MissingRange(topic="t", partition=0, first_offset=2, last_offset=2),  # of an earlier run
    MissingRange(topic="t", partition=0, first_offset=10, last_offset=17),
)


class PySparkException(Exception):
    """As if it were pyspark's."""


PySparkException.__module__ = "pyspark.errors"
WORKER = (
    "Traceback (most recent call last):\n  File x\ntailrace.model.errors.X: the jug broke\n\tat org.apache.X"
)
started = threading.Event()
told: list[SparkSettings] = []  # what each Spark was


def pour(config: PourConfig, *, spark: object, observe: Observer, stop: threading.Event) -> Poured:
    offsets = {topic: {0: 12_345} for topic in config.topic}
    missing = MISSING if config.ends == "hole" else ()
    observe(
        Progress(
            pipeline="pour",
            batch=1,
            rows=config.rows,
            rows_per_s=2.0,
            lag=40,
            offsets=offsets,
            missing=missing,
        )
    )
    started.set()
    if config.ends == "strict":
        raise DataMissing("these records were deleted: t-0 10 to 17")
    if config.ends == "ours":
        raise TailraceError("the jug is empty")
    if config.ends == "spark":
        raise PySparkException(WORKER)
    if config.ends == "bug":
        raise ZeroDivisionError("a bug")
    # In pieces: a signal that the kernel gives to another thread does not end a wait of this one.
    stopped = not config.once and any(stop.wait(0.1) for _ in range(10 * DEADLINE_S))
    poured = {"offsets": offsets, "rows": config.rows, "jug": "blue", "stopped": stopped}
    if config.ends == "hole":
        return PouredBesides(**poured, bad=(HOLE,), missing=missing)  # type: ignore[arg-type]
    return Poured(**poured)  # type: ignore[arg-type]


POUR = Pipeline(name="pour", summary="", module=__name__, config="PourConfig", function="pour")
POUR_FLAGS = (
    Flag(field="topic", kind="list", metavar="TOPIC", help="x"),
    Flag(field="once", kind="switch", help="x"),
    Flag(field="rows", metavar="COUNT", help="x"),
    Flag(field="lake", metavar="LAKE", help="x"),
    Flag(field="every_s", metavar="SECONDS", help="x"),
    Flag(field="ends", metavar="HOW", help="x"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def bootstrap(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    return broker.bootstrap_servers


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipeline that pours, and a Spark that is none."""

    @contextmanager
    def open_session(settings: SparkSettings, *, tell: Any, **_options: Any) -> Iterator[object]:
        told.append(settings)
        tell("starting Spark (local[2])...")
        yield object()

    table = {"pour": POUR}
    monkeypatch.setattr(session, "open_session", open_session)
    monkeypatch.setattr(session, "check_spark", lambda **_options: "4.3.0")
    monkeypatch.setattr(declared, "PIPELINES", table)
    monkeypatch.setattr(declared, "find_pipeline", lambda name: registry.find_pipeline(name, table=table))
    monkeypatch.setattr(registry, "PIPELINES", table)
    find = registry.find_pipeline
    monkeypatch.setattr(registry, "find_pipeline", lambda name, **_more: find(name, table=table))
    monkeypatch.setitem(pipeline_run._SUMMARIES, "pour", "Pour.")
    monkeypatch.setitem(pipeline_run._NOTES, "pour", "It pours.")
    monkeypatch.setattr(pipeline_run, "EXAMPLES", {"pour": ("tailrace pipeline run pour",)})
    command = pipeline_run._pipeline_command("pour", POUR_FLAGS)
    monkeypatch.setitem(pipeline_run.command.commands, "pour", command)
    monkeypatch.chdir(tmp_path)
    started.clear()
    told.clear()


def run(*args: str) -> int:
    return main(["pipeline", "run", *args])


def ids(bootstrap: str) -> set[str]:
    return {record.id for record in Cluster(bootstrap).run(fetch_runs)}


# ---- run


def test_a_run_ends_with_what_it_reached(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pour", "--topic", "orders", "--topic", "a,b", "--once") == 0
    out, err = capsys.readouterr()
    assert re.match(r"pour finished after \d+ s\n", out)
    assert re.search(r"^rows +5 *\njug +blue *\n", out, re.MULTILINE)
    assert [line.split() for line in out.splitlines()[-4:]] == [
        ["partition", "end", "offset"],
        ["orders-0", "12,345"],
        ["a-0", "12,345"],
        ["b-0", "12,345"],
    ]
    assert err.splitlines()[:3] == [
        "starting Spark (local[2])...",
        "running pour...",
        "pour  batch 1  5 rows  2 rows/s  lag 40",
    ]


def test_json_is_one_object(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pour", "--topic", "t", "--once", "--rows", "7", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["state"], found["error"]) == ("pour", "finished", None)
    assert found["result"] == {"offsets": {"t": {"0": 12345}}, "rows": 7, "jug": "blue", "stopped": False}


def test_jsonl_tells_progress_and_then_that_it_is_done(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pour", "--topic", "t", "--once", "-o", "jsonl") == 0
    progress, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (progress["name"], progress["rows"], progress["lag"]) == ("pour", 5, 40)
    assert last["done"] is True
    assert [each["id"] for each in last["runs"]] == [progress["id"]]


@pytest.mark.parametrize(
    ("ends", "said"), [("ours", "error: the jug is empty"), ("spark", "error: the jug broke")]
)
def test_a_run_that_fails_says_why_in_one_line(
    bootstrap: str, capsys: pytest.CaptureFixture[str], ends: str, said: str
) -> None:
    assert run("pour", "--topic", "t", "--ends", ends) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == said
    assert "Traceback" not in err
    assert out == f"pour failed: {said.removeprefix('error: ')}\n"


def test_what_a_lake_misses_is_named_and_a_new_hole_ends_with_6(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pour", "--topic", "t", "--once", "--ends", "hole") == 6
    out, err = capsys.readouterr()
    assert out.splitlines()[-2:] == [
        "missing: t-0 2 to 2: deleted from the topic before it was archived",
        "missing: t-0 10 to 17: deleted from the topic before it was archived",
    ]
    assert "set aside" not in out
    assert "lag 40  missing 9" in err
    assert err.splitlines()[-1].startswith("error: records were deleted before they were archived")
    assert err.splitlines()[-1].endswith("the rest is in the lake: pour: t-0 10 to 17")
    assert main(["pipeline", "status", "pour"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^missing +9\b", out, re.MULTILINE)
    assert [line.split() for line in out.partition("Missing from the lake")[2].splitlines()[1:4]] == [
        ["partition", "from", "to", "offsets"],
        ["t-0", "2", "2", "1"],
        ["t-0", "10", "17", "8"],
    ]


def test_a_run_that_may_not_pass_over_a_hole_ends_with_6(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pour", "--topic", "t", "--ends", "strict") == 6
    assert capsys.readouterr().err.splitlines()[-1] == "error: these records were deleted: t-0 10 to 17"


def test_a_bug_shows_its_traceback(bootstrap: str) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run("pour", "--topic", "t", "--ends", "bug")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name a pipeline, or say --all"),
        (["pour"], "pipeline run pour: pour needs --topic"),
        (["pour", "--topic", "t", "--rows", "x"], "pipeline run pour: --rows = 'x' must be int"),
        (["pour", "--topic", "t", "--nope"], "No such option"),
        (["purr"], "'purr' is neither a pipeline nor declared. Did you mean pour?"),
        (["--all"], "no pipeline is declared. Add [pipelines.NAME]"),
        (["--all", "pour"], "--all stands in front of pour"),
        (["-b", "x:1", "pour", "--topic", "t"], "--bootstrap stands in front of pour"),
        (["pour", "--topic", "t", "--conf", "spark.x"], "--conf spark.x is not KEY=VALUE"),
        (["pour", "--topic", "t", "--ship"], "--ship sends Tailrace to the workers of a cluster"),
        (
            ["pour", "--topic", "t", "--archives", "absent.zip"],
            "--archives absent.zip: there is no such file",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_before_spark_starts(
    capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert run(*args) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "starting Spark" not in err


def test_spark_is_told_what_flags_and_the_file_say(bootstrap: str, tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "env.zip"):
        (tmp_path / name).touch()
    (tmp_path / "tailrace.toml").write_text(
        "[spark]\nmaster = 'spark://h:7077'\npackages = ['a:b:1']\n"
        "[spark.conf]\nspark.executor.memory = '4g'\nspark.executor.cores = 2\n"
    )
    flags = ("--conf", "spark.executor.memory=8g", "--py-files", "a.py,b.py", "--archives", "env.zip#env")
    assert run("pour", "--topic", "t", "--once", "--ship", "--ui", *flags) == 0
    assert told == [
        SparkSettings(
            master="spark://h:7077",
            conf={"spark.executor.memory": "8g", "spark.executor.cores": "2"},
            packages=("a:b:1",),
            py_files=("a.py", "b.py"),
            archives=("env.zip#env",),
            ship=True,
            ui=True,
        )
    ]


def test_spark_settings_of_the_file_are_checked_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailrace.toml").write_text("[spark]\nmastr = 'x'\n")
    assert main(["config", "validate", "tailrace.toml"]) != 0
    assert "[spark]: mastr is not a setting. Did you mean master?" in str(capsys.readouterr())


@pytest.mark.parametrize(("args", "restarts"), [(("night",), True), (("pour", "--topic", "t"), False)])
def test_what_is_declared_restarts_and_what_is_typed_does_not(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], restarts: bool
) -> None:
    (tmp_path / "tailrace.toml").write_text("[pipelines.night]\nrun = 'pour'\ntopic = ['t']\n")
    made: list[bool] = []
    begin = Runner.__init__

    def noted(self: Runner, *words: Any, **options: Any) -> None:
        made.append(options["restarts"])
        begin(self, *words, **options)

    monkeypatch.setattr(Runner, "__init__", noted)
    assert run(*args, "--once") == 0
    assert made == [restarts]


def test_spark_env_is_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the cache"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert main(["spark-env"]) == 0
    script = capsys.readouterr().out + 'printf "%s\\n" "$SPARK_HOME" "$PYSPARK_PYTHON"'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, env={})
    home, python = done.stdout.splitlines()
    assert Path(home).is_relative_to(tmp_path / "the cache")
    assert (Path(home) / "python" / "lib" / "pyspark.zip").is_dir()
    assert python == sys.executable


def test_spark_env_says_where_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["spark-env"]) == 1
    assert "Name another place with XDG_CACHE_HOME" in capsys.readouterr().err


def test_without_java_the_fix_is_said_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(**_options: Any) -> str:
        raise ConfigError("Spark needs Java. On Debian: apt-get install it")

    monkeypatch.setattr(session, "check_spark", check)
    assert run("pour", "--topic", "t") == 2
    assert capsys.readouterr().err == "error: Spark needs Java. On Debian: apt-get install it\n"


def test_up_with_pipelines_is_refused_without_java(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def check(**_options: Any) -> str:
        raise ConfigError("Spark needs Java. On Debian: apt-get install it")

    monkeypatch.setattr(session, "check_spark", check)
    assert main(["up", "--demo", "--pipelines"]) == 2
    assert capsys.readouterr() == ("", "error: Spark needs Java. On Debian: apt-get install it\n")
    assert os.listdir(tmp_path) == []


def test_a_missing_library_is_named_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = dataclasses.replace(POUR, module="tailrace.absent")
    monkeypatch.setattr(registry, "find_pipeline", lambda _name: absent)
    assert run("pour", "--topic", "t") == 2
    err = capsys.readouterr().err
    assert "pipelines need tailrace.absent, which is not installed. Try: pip install 'tailrace[spark]'" in err


def test_a_broker_that_is_not_there_is_said_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("pour", "--topic", "t", "-b", "127.0.0.1:1") == 1
    err = capsys.readouterr().err
    assert "127.0.0.1:1" in err
    assert "starting Spark" not in err


def test_a_lake_that_is_not_there_is_said_before_spark_starts(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pour", "--topic", "t", "-b", bootstrap, "--lake", "nowhere") == 2
    err = capsys.readouterr().err
    assert "there is no lake at" in err and "nowhere" in err
    assert "starting Spark" not in err


# ---- declared


def test_a_declared_pipeline_runs_by_its_name(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailrace.toml").write_text("[pipelines.night]\nrun = 'pour'\ntopic = ['t']\nrows = 9\n")
    assert run("night", "--once", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["pipeline"], found["result"]["rows"]) == ("night", "pour", 9)


def test_a_pipeline_without_flags_is_the_declared_one_of_its_name(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text("[pipelines.pour]\ntopic = 't'\nrows = 9\n")
    assert run("pour", "--once", "--config", "my.toml", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["result"]["rows"] == 9
    assert run("pour", "--topic", "u", "--once", "--config", "my.toml", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["result"] == {
        "offsets": {"u": {"0": 12345}},
        "rows": 5,
        "jug": "blue",
        "stopped": False,
    }


def test_all_run_together_and_the_exit_says_which_failed(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailrace.toml").write_text(
        "[pipelines.pour]\ntopic = 't'\n[pipelines.night]\nrun = 'pour'\ntopic = 't'\nends = 'ours'\n"
    )
    assert run("--all", "--once", "-o", "json") == 1
    out, err = capsys.readouterr()
    assert [(each["name"], each["state"]) for each in json.loads(out)["runs"]] == [
        ("pour", "finished"),
        ("night", "failed"),
    ]
    assert err.splitlines()[-1] == "error: night failed: the jug is empty"


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_one_of_several_that_fails_is_told_while_the_others_go_on(
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    output: str,
) -> None:
    """The other one goes on for ever: it is stopped by what is told of the first."""
    (tmp_path / "tailrace.toml").write_text(
        "[pipelines.pour]\ntopic = 't'\n[pipelines.night]\nrun = 'pour'\ntopic = 't'\nends = 'ours'\n"
    )
    ended = RunScreen.ended

    def ended_then_stop(screen: RunScreen, outcome: Outcome) -> None:
        ended(screen, outcome)
        if outcome.name == "night":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunScreen, "ended", ended_then_stop)
    assert run("--all", "-o", output) == 1
    out, err = capfd.readouterr()
    assert err.splitlines().count("night failed: the jug is empty") == 1
    assert err.splitlines()[-1] == "error: night failed: the jug is empty"
    if output == "jsonl":
        objects = [json.loads(line) for line in out.splitlines()]
        (told,) = [each for each in objects if "state" in each]
        assert (told["name"], told["state"], told["error"]) == ("night", "failed", "the jug is empty")


# ---- stopping


def in_background(work: Any) -> None:
    threading.Thread(target=work, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_run_after_its_batch(
    bootstrap: str, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    before = signal.getsignal(number)

    def interrupt() -> None:
        assert started.wait(DEADLINE_S)
        os.kill(os.getpid(), number)

    in_background(interrupt)
    assert run("pour", "--topic", "t") == 0
    out, err = capfd.readouterr()
    assert "stopping after this batch; again ends at once\n" in err
    assert out.startswith("pour stopped after")
    assert signal.getsignal(number) is before


def test_one_that_is_repeated_waits_for_its_lake_until_a_signal_ends_it_well(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = RunScreen.watch

    def watch_then_stop(screen: RunScreen, of: Run, progress: Progress) -> None:
        watch(screen, of, progress)
        if not started.is_set():  # once: a second signal ends the process
            started.set()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunScreen, "watch", watch_then_stop)
    assert run("pour", "--topic", "t", "--once", "--lake", "nowhere", "--every-s", "60") == 0
    out, err = capfd.readouterr()
    assert "waiting for the lake nowhere" in err
    assert out.startswith("pour stopped after")


def test_once_wins_over_a_declared_repetition(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailrace.toml").write_text("[pipelines.night]\nrun = 'pour'\ntopic = 't'\nevery_s = 60\n")
    assert run("night", "--once", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_the_second_signal_ends_it_at_once() -> None:
    code = """
        import os, signal, threading
        from tailrace.cli.pipeline_run import _signals
        class Runner:
            def stop(self):
                print("asked", flush=True)
        with _signals(Runner()) as starting:
            starting.clear()
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            print("not reached", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line[8:] for line in code.splitlines())],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "asked\n")


def test_a_signal_while_spark_starts_ends_it_all(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def open_session(_settings: object, **_options: Any) -> Iterator[object]:
        os.kill(os.getpid(), signal.SIGINT)
        yield object()

    monkeypatch.setattr(session, "open_session", open_session)
    assert run("pour", "--topic", "t") == 130
    assert not started.is_set()


def test_a_run_stops_when_whoever_started_it_is_gone(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()

    def leave() -> None:
        assert started.wait(DEADLINE_S)
        os.close(theirs)

    with os.fdopen(ours, "rb", buffering=0) as stdin:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stdin)))
        in_background(leave)
        assert run("pour", "--topic", "t", "--with-parent") == 0


def test_pipeline_stop_ends_a_run_from_elsewhere(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []

    def stop() -> None:
        assert started.wait(DEADLINE_S)
        while main(["pipeline", "stop", "pour"]) != 0:  # until its first beat is written
            pass
        codes.append(main(["pipeline", "stop", "pour", "--wait"]))

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    assert run("pour", "--topic", "t", "-o", "json") == 0
    stopping.join(DEADLINE_S)
    assert codes == [0] or codes == [3]  # it may have ended before it was asked again
    assert '"state": "stopped"' in capsys.readouterr().out


# ---- list, status, stop


@pytest.fixture
def beating(bootstrap: str) -> Iterator[Heartbeat]:
    """A run under way, as another process would have one."""
    record = new_run(pipeline="archive", name="night", config={"topic": ["t"], "format": None})
    heartbeat = Heartbeat(bootstrap, record, on_stop=lambda _by: stopped.set(), every_s=0.05)
    stopped = threading.Event()
    heartbeat.stopped = stopped  # type: ignore[attr-defined]
    heartbeat.start()
    heartbeat.observe(
        Progress(pipeline="archive", batch=1, rows=1_234, rows_per_s=10, lag=7, offsets={"t": {0: 1_234}})
    )
    while not any(run.id == record.id and run.progress for run in Cluster(bootstrap).run(fetch_runs)):
        pass
    yield heartbeat
    heartbeat.end(state="stopped")


def test_list_shows_runs_newest_first(beating: Heartbeat, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", "-o", "json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["id"], first["state"], first["rows"], first["lag"]) == (beating.run.id, "running", 1234, 7)
    assert main(["pipeline", "list"]) == 0
    assert re.search(rf"{beating.run.id} +night +archive +running +1,234 +10 +7 ", capsys.readouterr().out)


def test_status_shows_one_run(beating: Heartbeat, capsys: pytest.CaptureFixture[str]) -> None:
    for wanted in ("night", beating.run.id, beating.run.id[:10]):
        assert main(["pipeline", "status", wanted, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["id"] == beating.run.id
        assert found["progress"]["offsets"] == {"t": {"0": 1234}}
        assert found["config"] == {"topic": ["t"], "format": None}
    assert main(["pipeline", "status", "night"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^t-0 +1,234$", shown, re.MULTILINE)
    assert "Settings" in shown


def test_stop_asks_and_wait_says_if_it_does_not(
    beating: Heartbeat, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "stop", "night"]) == 0
    assert beating.stopped.wait(DEADLINE_S)  # type: ignore[attr-defined]
    assert main(["pipeline", "stop", beating.run.id, "--wait", "--timeout", "0.5"]) == 5
    assert f"{beating.run.id} still runs after 0.5 s" in capsys.readouterr().err


def test_a_run_that_has_ended_cannot_be_stopped(
    beating: Heartbeat, capsys: pytest.CaptureFixture[str]
) -> None:
    beating.end(state="finished")
    assert main(["pipeline", "stop", beating.run.id]) == 3
    assert f"does not run: {beating.run.id} finished at" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["status", "stop"])
def test_an_unknown_run_is_not_found(bootstrap: str, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert main(["pipeline", verb, "zzz"]) == 3
    assert "no run has the id or the name 'zzz'. Try: tailrace pipeline list" in capsys.readouterr().err


# ---- flags and words


@pytest.mark.parametrize("kind", FLAGS)
def test_every_field_of_a_config_has_its_flag(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")
    monkeypatch.undo()
    fields = {field.name: field for field in dataclasses.fields(PIPELINES[kind].load_config())}
    flags = {flag.field: flag for flag in FLAGS[kind]}
    assert flags.keys() == fields.keys() - {"bootstrap", "output"}  # which all of them have
    for name, flag in flags.items():
        default = fields[name].default
        if flag.default and isinstance(default, str | int | float) and not isinstance(default, bool):
            assert flag.default == str(default), name


@pytest.mark.parametrize("kind", FLAGS)
def test_help_teaches_and_imports_nothing_heavy(kind: str) -> None:
    code = (
        "import sys; from tailrace.cli.main import main; main(['pipeline', 'run', sys.argv[1], '--help']); "
        "assert not {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, kind],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"tailrace pipeline run {kind}" in done.stdout
    assert "Examples:" in done.stdout


def test_progress_in_words() -> None:
    progress = Progress(
        pipeline="sql",
        batch=1_000,
        rows=1_234_567,
        rows_per_s=1_234.5,
        lag=9,
        watermark="12:00",
        eta_s=130,
        note="x",
    )
    assert progress_text(progress) == (
        "batch 1,000  1,234,567 rows  1,234 rows/s  lag 9  watermark 12:00  ETA 2 m 10 s  x"
    )
    assert [duration_text(each) for each in (0.4, 59.4, 60, 3_700)] == ["0 s", "59 s", "1 m 0 s", "1 h 1 m"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_failure_has_a_line_of_its_own_on_a_terminal() -> None:
    terminal = Terminal()
    screen = RunScreen(Output("table"), stream=terminal)
    error = TailraceError("no \x1b room")
    screen.ended(Outcome(id="1", name="a", pipeline="pour", state="finished", seconds=1))
    screen.ended(Outcome(id="2", name="b", pipeline="pour", state="failed", seconds=1, error=error))
    screen.close()
    assert [line for line in terminal.getvalue().splitlines() if "failed:" in line] == [
        "\x1b[Kb failed: no \\x1b room"
    ]


def test_on_a_terminal_one_line_lives_while_spark_starts() -> None:
    terminal = Terminal()
    screen = RunScreen(Output("table"), stream=terminal)
    screen.tell("starting \x1b[31mSpark...")
    deadline = threading.Event()
    while "starting" not in terminal.getvalue():
        assert not deadline.wait(0.01)
    screen.close()
    text = terminal.getvalue()
    assert re.search(r"\r[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] starting \\x1b\[31mSpark\.\.\. \d+ s\x1b\[K", text)
    assert "\n" not in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.parametrize("live", [True, False])
def test_a_notice_is_a_line_of_its_own_even_if_the_live_line_gave_way(live: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return live

    stream = Terminal()
    screen = RunScreen(Output("table"), stream=stream)
    screen.give_way()
    made = declared.Declared(name="sums", pipeline=POUR, config=PourConfig(topic=("t",)))
    run = Run(declared=made, record=new_run(pipeline="sql", name="sums", config={}))
    progress = Progress(pipeline="sql", batch=0, rows=0, rows_per_s=0, lag=None, notice="orders: guessed")
    screen.watch(run, progress)
    assert stream.getvalue().split("\x1b[K")[-1] == "sums: orders: guessed\n"
