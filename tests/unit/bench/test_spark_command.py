"""`tailrace bench spark` as a command: its output in every format and its errors; the run is made up here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tailrace

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from tailrace.bench.spark import run as benchmark
from tailrace.bench.spark.run import Sample, SparkPlan, SparkRun
from tailrace.bench.wire.subject import Subject
from tailrace.cli.main import main
from tailrace.model import ConfigError
from tailrace.spark.pipelines import session

Plans = list[SparkPlan]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with tailrace.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[SparkRun], Plans]:
    """Have the next run find this, and tell with which plan it was asked."""
    monkeypatch.setattr(session, "check_spark", lambda: "4.3.0")

    def set_run(found: SparkRun) -> Plans:
        plans: Plans = []

        def run(_subject: Subject, plan: SparkPlan, *, place: Path, note: Callable[[str], None]) -> SparkRun:
            assert place.is_absolute()
            plans.append(plan)
            note("a step")
            return found

        monkeypatch.setattr(benchmark, "run_spark_bench", run)
        return plans

    return set_run


def found() -> SparkRun:
    return SparkRun(
        samples=[
            Sample(load="noop", form="tailrace", value=2_000_000),
            Sample(load="noop", form="kafka", value=500_000),
        ],
        missing={"copy kafka": "it broke"},
        connector="4.2.0",
        spark_version="4.3.0",
    )


def test_the_table_has_loads_goals_and_what_is_missing(
    bootstrap: str, pretend: Callable[[SparkRun], Plans], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(found())
    assert main(["bench", "spark", "-b", bootstrap]) == 0
    out, err = capsys.readouterr()
    assert "topic to noop" in out and "2,000,000" in out and "4.00" in out
    assert "read to noop, against Spark's Kafka source" in out and "met" in out
    assert "spark-sql-kafka 4.2.0" in out
    assert err.startswith("a step\n") and "Not measured, copy kafka: it broke" in err


def test_json_is_the_whole_report(
    bootstrap: str, pretend: Callable[[SparkRun], Plans], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pretend(found())
    page = tmp_path / "report.html"
    assert main(["bench", "spark", "-b", bootstrap, "-o", "json", "--html", str(page)]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["medians"]["noop"] == {"tailrace": 2_000_000, "kafka": 500_000}
    assert row["broker"]["address"] == bootstrap
    assert "topic to noop" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "records", "rounds", "master"),
    [
        ([], 4_000_000, 5, "local[2]"),
        (["--quick"], 400_000, 2, "local[2]"),
        (["--quick", "--records", "5000", "--rounds", "1", "--master", "local[4]"], 5000, 1, "local[4]"),
    ],
)
def test_options_make_the_plan(
    bootstrap: str,
    pretend: Callable[[SparkRun], Plans],
    options: list[str],
    records: int,
    rounds: int,
    master: str,
) -> None:
    plans = pretend(found())
    assert main(["bench", "spark", "-b", bootstrap, "-o", "json", *options]) == 0
    assert [(plan.records, plan.rounds, plan.master) for plan in plans] == [(records, rounds, master)]


def test_a_run_that_failed_tells_why_and_names_the_topics_that_are_left(
    bootstrap: str, pretend: Callable[[SparkRun], Plans], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(SparkRun(failure="the disk is full", topics_left=["one", "two"]))
    assert main(["bench", "spark", "-b", bootstrap]) == 1
    err = capsys.readouterr().err
    assert "the disk is full" in err
    assert "tailrace topic delete one --yes" in err and "tailrace topic delete two --yes" in err


def test_ctrl_c_is_told_by_the_exit_code(bootstrap: str, pretend: Callable[[SparkRun], Plans]) -> None:
    pretend(SparkRun(interrupted=True))
    assert main(["bench", "spark", "-b", bootstrap, "-o", "json"]) == 130


def test_without_spark_nothing_is_asked_of_the_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise ConfigError("Spark needs Java, and there is none")

    monkeypatch.setattr(session, "check_spark", refuse)
    assert main(["bench", "spark", "-b", "127.0.0.1:1"]) != 0
    assert "Spark needs Java" in capsys.readouterr().err


def test_nobody_there_is_an_error_that_says_where(
    pretend: Callable[[SparkRun], Plans], capsys: pytest.CaptureFixture[str]
) -> None:
    plans = pretend(found())
    assert main(["bench", "spark", "-b", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert plans == []


@pytest.mark.parametrize(
    "options",
    [["--records", "999"], ["--records", "many"], ["--rounds", "0"], ["--dir", "/nowhere"], ["extra"]],
)
def test_options_that_are_none_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "spark", *options]) == 2
    assert options[0] in capsys.readouterr().err
