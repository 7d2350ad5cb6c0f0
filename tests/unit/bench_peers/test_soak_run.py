"""A whole soak of a few seconds with a real broker in its own process; and its end by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.child import ROOT
from bench.soak.report import read_json
from bench.soak.run import Plan, Progress, SoakServer, run
from bench.soak.shape import Shape

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
pytestmark = [pytest.mark.slow, linux]

TINY = Plan(
    minutes=8 / 60,
    share=0.1,  # a busy machine must not make these tests fail
    calibrate_s=2.0,
    settle_s=0.2,
    every_s=0.1,
    shape=Shape(partitions=2, singles=2, batchers=2, group_every_s=0.2, topic_every_s=0.3),
)


def no_signal(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def test_a_short_soak_counts_every_record_and_leaves_nothing_behind(tmp_path: Path) -> None:
    said: list[Progress] = []

    report = run(TINY, directory=tmp_path, wait=no_signal, note=said.append)

    assert [why for why in report.failures if "keep up" not in why] == []
    assert len(report.ledger) == 2
    for row in report.ledger:
        assert row["acknowledged"] == row["log_end"] == row["read_to"] > 0
    assert all(report.visits.values())
    assert {verdict.course for verdict in report.verdicts} <= {"flat", "rises", "falls"}
    assert len(report.verdicts) >= 8
    assert report.span_s >= 8
    assert said[-1].done_s > 6
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_dies_is_a_failure_with_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SoakServer] = []
    start = SoakServer.start

    def start_and_keep(server: SoakServer, place: Path) -> float:
        started.append(server)
        return start(server, place)

    monkeypatch.setattr(SoakServer, "start", start_and_keep)

    def kill_it(now: Progress) -> None:
        if now.done_s > 0.5:
            os.kill(started[0].pid, signal.SIGKILL)

    report = run(TINY, directory=tmp_path, wait=no_signal, note=kill_it)

    assert report.failures
    assert not report.passed
    assert report.samples["at_s"]
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_the_soak_early_with_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench.soak", "--minutes", "5", "--calibrate", "2", "--out", str(out)]
    with subprocess.Popen(
        [*command, "--dir", str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        signalled = False
        for line in process.stderr:
            if line.startswith("[0:") and not signalled:  # it runs, and says so once a minute
                process.send_signal(signal.SIGTERM)
                signalled = True
        shown = process.stdout.read() if process.stdout is not None else ""
        status = process.wait(60)

    report = read_json(out / "soak.json")
    assert status in (1, 130)  # 1 if the machine was too busy for half a load
    assert report.interrupted
    assert all(row["acknowledged"] == row["log_end"] for row in report.ledger)
    assert "interrupted" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
