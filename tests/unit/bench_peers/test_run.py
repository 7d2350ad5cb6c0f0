"""A whole run with tiny numbers, Tailrace against nobody or a missing peer; and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.command import command, plan_of
from bench.load import CLIENT, LATENCY, WIRE, Load
from bench.measure import Durations
from bench.report import Report, read_json
from bench.run import QUICK, Plan, run
from bench.server import NotHere, RedisServer
from bench.target import Target, plan_targets
from click.testing import CliRunner

TINY_S = Durations(warm_s=0.0, seconds=0.5, client_s=0.05, latency_s=0.2)
TINY = Plan(rounds=2, client_rounds=1, durations=TINY_S, warm_up=TINY_S, starts=1, idle_s=0.01)


def run_tiny(targets: list[Target], loads: list[Load], directory: Path) -> tuple[Report, list[str]]:
    steps: list[str] = []
    report = run(targets, loads, TINY, directory=directory, note=steps.append)
    return report, steps


@pytest.mark.slow
def test_every_kind_of_load_gives_its_figures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    targets = [target for target in plan_targets([]) if target.name == "tailrace-os"]
    loads: list[Load] = [WIRE[0], CLIENT[1], LATENCY[0]]

    report, steps = run_tiny(targets, loads, tmp_path)

    assert report.failures == []
    assert len(steps) == TINY.steps(loads, targets)
    for name in ("unbatched", "latency-1k"):
        assert len(report.values(name, "tailrace-os", "count")) == TINY.rounds
    for way in ("in", "out"):
        assert len(report.values(f"{CLIENT[1].name}-{way}", "tailrace-os", "count")) == TINY.client_rounds
        assert len(report.values(name, "tailrace-os", "cpu_us")) == 2
    assert report.fact("tailrace-os", "loaded_rss_mb") is not None
    assert report.ceiling["unbatched_per_s"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_peer_that_is_missing_is_skipped_with_the_reason(tmp_path: Path) -> None:
    class Missing(RedisServer):
        def find(self) -> None:
            raise NotHere("redis-server is not installed")

    target = Target(name="redis", title="Redis", server=Missing(), dialect="redis", durable=False)

    report, _ = run_tiny([target], [WIRE[0]], tmp_path)

    assert report.skipped == {"redis": "redis-server is not installed"}
    assert report.samples == []


@pytest.mark.slow
def test_an_interrupt_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    def note(step: str) -> None:
        if step.startswith("unbatched"):
            raise KeyboardInterrupt

    targets = [target for target in plan_targets([]) if target.name == "tailrace-os"]

    report = run(targets, [WIRE[0]], TINY, directory=tmp_path, note=note)

    assert report.interrupted
    assert "tailrace-os" in report.servers
    with pytest.raises(AssertionError, match="not running"):
        _ = targets[0].server.pid
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_writes_json_table_and_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--quick", "--only", "producers-1", "--peers", "", "--seconds", "0.3"]

    done = CliRunner().invoke(command, [*arguments, "--dir", str(tmp_path), "--out", str(out)])

    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == [
        f"peers-quick.{end}" for end in ("html", "json", "md")
    ]
    assert read_json(out / "peers-quick.json").value("producers-1", "tailrace", "per_s")
    assert "time to ready" in done.output


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--peers", "nobody"], ["--rounds", "0"]])
def test_a_wrong_word_is_a_usage_error(arguments: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*arguments, "--out", str(tmp_path / "out")])

    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_the_command_line_changes_the_plan() -> None:
    plan = plan_of(QUICK, rounds=5, seconds=0.1)

    assert (plan.rounds, plan.durations.seconds, plan.durations.warm_s) == (5, 0.1, QUICK.durations.warm_s)
    assert plan.client_rounds == 5
    assert plan_of(QUICK, rounds=None, seconds=None) == QUICK
