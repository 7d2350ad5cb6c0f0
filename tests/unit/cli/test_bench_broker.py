"""`tailrace bench` against brokers in this process and in one of their own: output, errors, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import bench
from tailrace.bench.wire import broker as loads
from tailrace.bench.wire import subject
from tailrace.bench.wire.broker import SHAPES, BrokerRun, Plan
from tailrace.bench.wire.subject import Subject
from tailrace.cli.main import main
from tailrace.client import admin
from tailrace.client.error import broker_error
from tailrace.model import ErrorCode

DEADLINE_S = 60
TINY_S = 0.1


@pytest.fixture(scope="module")
def running() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as broker:
        yield broker


@pytest.fixture
def broker(running: tailrace.Broker, monkeypatch: pytest.MonkeyPatch) -> tailrace.Broker:
    """A broker at the default address of this test's commands, and windows that are short."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", running.bootstrap_servers)
    monkeypatch.setattr(loads, "QUICK_S", TINY_S)
    monkeypatch.setattr(loads, "FULL_S", 2 * TINY_S)
    return running


class FakeRun:
    """Stands in for the loads, and remembers what it was asked for."""

    def __init__(self, run: BrokerRun) -> None:
        self.run = run
        self.plan: Plan | None = None

    def __call__(self, _subject: Subject, plan: Plan, *, note: Callable[[str], None]) -> BrokerRun:
        self.plan = plan
        note("a load")
        return self.run


@pytest.fixture
def fake(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    fake = FakeRun(BrokerRun())
    monkeypatch.setattr(loads, "run_broker_bench", fake)
    return fake


def topics(capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["topic", "list", "-o", "json"]) == 0
    return [row["name"] for row in json.loads(capsys.readouterr().out)]


# ---- what it prints


def test_every_load_is_measured_and_shown(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--quick"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split()[:3] == ["load", "per", "s"]
    for shape in SHAPES:
        (line,) = [line for line in lines if line.split()[:1] == [shape.name]]
        assert len(line.split()) == 1 + 8
    assert any(line.split() == ["broker", broker.bootstrap_servers] for line in lines)
    assert shown.err.splitlines()[: len(SHAPES)] == [shape.title for shape in SHAPES]
    assert "tailrace bench log" in shown.err and "docs/performance-analysis.md" in shown.err
    assert "\x1b" not in shown.out + shown.err
    assert topics(capsys) == []


def test_json_is_one_object_with_the_loads_that_were_asked_for(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--quick", "--only", "delivery, one", "-o", "json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [load["name"] for load in found["loads"]] == ["one", "delivery"]
    assert found["stopped"] is None
    assert found["broker"]["address"] == broker.bootstrap_servers
    assert found["broker"]["processes"][0]["pid"] == os.getpid()
    assert "Next" not in shown.err


def test_jsonl_is_one_line(broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "--only", "one", "-o", "jsonl"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert [load["name"] for load in json.loads(line)["loads"]] == ["one"]


def test_a_page_is_written_beside_what_is_printed(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    assert main(["bench", "--quick", "--only", "one", "-o", "json", "--html", str(path)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["loads"]
    assert f"wrote {path}\n" in shown.err
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and SHAPES[0].title in text


def test_on_a_terminal_there_is_a_bar_with_the_loads_name(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["bench", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert "a load" in shown.err and "0/8" in shown.err
    json.loads(shown.out)


def test_help_tells_every_load_both_benchmarks_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    for shape in SHAPES:
        assert f"{shape.name}: " in shown
    for word in ("tailrace bench log", "p99.9", "CPU", "--bootstrap", "Examples:"):
        assert word in shown


# ---- options


def test_options_become_the_plan(fake: FakeRun) -> None:
    options = ["--acks", "1", "--partitions", "6", "--record-bytes", "321", "--only", "many"]
    assert main(["bench", *options]) == 0
    shapes = [shape for shape in SHAPES if shape.name == "many"]
    assert fake.plan == Plan(seconds=2 * TINY_S, shapes=shapes, acks=1, partitions=6, record_bytes=321)


def test_without_options_every_load_runs_in_full(fake: FakeRun) -> None:
    assert main(["bench"]) == 0
    assert fake.plan == Plan(seconds=2 * TINY_S, shapes=list(SHAPES), acks=-1)


@pytest.mark.parametrize(
    "args",
    [
        ["--only", "one,two"],
        ["--acks", "0"],
        ["--partitions", "0"],
        ["--record-bytes", "-1"],
        ["--fast"],
        ["somewhere"],
        ["--bootstrap", "127.0.0.1:port"],
    ],
)
def test_wrong_usage_is_an_error_with_code_2(fake: FakeRun, args: list[str]) -> None:
    assert main(["bench", *args]) == 2
    assert fake.plan is None


def test_an_unknown_load_is_answered_with_those_there_are(
    fake: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--only", "fetch"]) == 2
    assert "fetch-16k, fetch-1m" in capsys.readouterr().err


def test_an_option_before_log_is_refused_and_not_lost(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "run_log_bench", None)  # it is not called
    assert main(["bench", "--quick", "log"]) == 2
    assert "--quick stands before log" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    fake: FakeRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "--html", str(tmp_path / "nowhere" / "report.html")]) == 3
    assert capsys.readouterr().err == f"error: No such file or directory: {tmp_path / 'nowhere'}\n"
    assert fake.plan is None


# ---- brokers that cannot be measured


def test_nobody_there_is_an_error_that_says_where_and_what_to_try(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "-b", "127.0.0.1:1"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "127.0.0.1:1 (connection refused)" in shown.err and "tailrace up" in shown.err


@contextmanager
def stranger(says: bytes) -> Iterator[str]:
    """The address of a server that reads a little, says this, and closes; again and again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed: the test is over
                    return
                with connection:
                    connection.recv(1024)
                    connection.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP and not Kafka"),
        (b"-ERR unknown command\r\n", "Is this the Kafka port?"),
        (b"", "Is this the Kafka port?"),
    ],
)
def test_what_is_not_kafka_is_an_error(capsys: pytest.CaptureFixture[str], says: bytes, told: str) -> None:
    with stranger(says) as address:
        assert main(["bench", "-b", address, "--timeout", "5"]) == 1
    assert told in capsys.readouterr().err


def test_a_version_that_is_missing_is_named(
    fake: FakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(subject._NEEDED, 0, 99)
    assert main(["bench"]) == 1
    assert "versions 0 to 12 of Produce, and the loads need version 99" in capsys.readouterr().err
    assert fake.plan is None


@pytest.mark.parametrize(
    ("code", "exit_code"), [(ErrorCode.POLICY_VIOLATION, 1), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 4)]
)
def test_a_topic_that_is_refused_is_the_brokers_word(
    broker: tailrace.Broker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: ErrorCode,
    exit_code: int,
) -> None:
    async def refuse(_client: object, name: str, **_settings: object) -> None:
        raise broker_error(code, f"topic {name}", "not here")

    monkeypatch.setattr(admin, "create_topic", refuse)
    assert main(["bench"]) == exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "topic tailrace-bench-" in shown.err and f"not here ({code.name})" in shown.err


# ---- runs that end early


def test_a_topic_that_is_left_is_named_with_the_way_out(
    fake: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.run.topic_left = "tailrace-bench-7"
    assert main(["bench"]) == 0
    assert "Try: tailrace topic delete tailrace-bench-7 --yes" in capsys.readouterr().err


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])}


@contextmanager
def server(cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real `tailrace up`, and where it is."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "tailrace", "up"),
            *("--kafka-port", "0", "--native-port", "0", "--http-port", "0", "--data-dir", "data"),
        ],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert any(line == "ready\n" for line in process.stdout)
        port = json.loads((cwd / "data" / "tailrace.ports.json").read_text())["kafka"]
        yield process, f"127.0.0.1:{port}"
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def bench_until(
    title: str, act: Callable[[subprocess.Popen[str]], None], bootstrap: str
) -> tuple[int, Any, str]:
    """Run the benchmark as a process, act when a load begins: exit code, JSON, the rest of stderr."""
    options = ["-b", bootstrap, "--only", "one,unbatched", "-o", "json"]
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "tailrace", "bench", *options],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(DEADLINE_S, process.send_signal, [signal.SIGABRT])  # which tells where it was
    watchdog.start()
    try:
        assert process.stderr is not None
        assert any(line == f"{title}\n" for line in process.stderr)
        act(process)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert out, f"it ended with {process.returncode} and no result:\n{err}"
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    return process.returncode, json.loads(out), err


def test_a_server_process_is_measured_with_its_processor_time_and_dies_with_a_word(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as (process, bootstrap):
        code, found, err = bench_until(SHAPES[1].title, lambda _bench: process.kill(), bootstrap)
    assert code == 1
    (load,) = found["loads"]
    assert (load["name"], load["cpu_us"] > 0, load["rss_mb"] > 10) == ("one", True, True)
    assert found["broker"]["processes"][0]["pid"] == process.pid
    assert found["stopped"].startswith(f"{SHAPES[1].title}: ")
    assert f"error: {bootstrap} failed in the middle: {SHAPES[1].title}: " in err
    assert "is still there. Try: tailrace topic delete tailrace-bench-" in err
    assert "Traceback" not in err


def test_ctrl_c_shows_what_there_is_deletes_the_topic_and_exits_with_130(
    running: tailrace.Broker, broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)

    code, found, err = bench_until(SHAPES[1].title, press, running.bootstrap_servers)
    assert code == 130
    assert [load["name"] for load in found["loads"]] == ["one"]
    assert found["stopped"] == "interrupted"
    assert err == "stopped before the end\n"
    assert topics(capsys) == []
