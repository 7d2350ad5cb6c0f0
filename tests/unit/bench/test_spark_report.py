"""The report of `tailrace bench spark` over figures made up here: medians, goals, rows, and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")

from bench.spark.table import as_markdown, table

from tailrace.bench.spark.codec import CodecRates
from tailrace.bench.spark.memory import Peak
from tailrace.bench.spark.page import write_spark_page
from tailrace.bench.spark.report import GOALS, SparkReport, judge, spark_report_of
from tailrace.bench.spark.run import FULL, QUICK, Sample, SparkRun, plan_of
from tailrace.bench.wire.subject import Subject
from tailrace.model.address import Address
from tailrace.wire.kafka import FETCH, PRODUCE

MEASURED_AT = datetime(2026, 3, 9, 17, 4, tzinfo=UTC)
SUBJECT = Subject(
    bootstrap="h:1",
    address=Address("h", 1),
    nodes={0: Address("h", 1)},
    cluster_id="c",
    versions={PRODUCE: (3, 9), FETCH: (4, 12)},
    processes=(),
    timeout_s=1,
)


def samples(load: str, form: str, *values: float) -> list[Sample]:
    return [Sample(load=load, form=form, value=value) for value in values]


def run() -> SparkRun:
    """Everything measured, every goal met."""
    return SparkRun(
        samples=[
            *samples("noop", "tailrace", 2e6, 1e6, 3e6),
            *samples("noop", "kafka", 0.8e6, 0.9e6, 0.7e6),
            *samples("parquet", "tailrace", 0.6e6),
            *samples("parquet", "kafka", 0.4e6, 0.5e6),
            *samples("archive", "tailrace", 1.8e6),
            *samples("cold", "tailrace", 1.5),
            *samples("cold", "kafka", 3.0),
        ],
        codec=[
            CodecRates(accelerated=True, decode_per_s=6_000_000, encode_per_s=5_000_000),
            CodecRates(accelerated=False, decode_per_s=2_000_000, encode_per_s=1_000_000),
        ],
        short_backlog=Peak(worker_bytes=200_000_000, total_bytes=300_000_000, workers=2),
        long_backlog=Peak(worker_bytes=220_000_000, total_bytes=400_000_000, workers=2),
        connector="4.2.0",
        spark_version="4.3.0",
    )


def report(found: SparkRun) -> SparkReport:
    return spark_report_of(SUBJECT, FULL, found, place=Path())


def values(found: SparkRun) -> dict[str, tuple[float | None, bool | None]]:
    return {each.goal.key: (each.value, each.met) for each in judge(report(found))}


def test_goals_are_ratios_of_medians() -> None:
    assert values(run()) == {
        "noop_ratio": (2.5, True),
        "archive_ratio": (4.0, True),
        "cold_ratio": (0.5, True),
        "decode_compiled": (6_000_000, True),
        "decode_pure": (2_000_000, True),
        "memory_ratio": (1.1, True),
    }
    assert [goal.key for goal in GOALS] == list(values(run()))


def test_goals_can_be_missed() -> None:
    found = run()
    found.samples = [
        *samples("noop", "tailrace", 1.0),
        *samples("noop", "kafka", 1.0),
        *samples("archive", "tailrace", 1.0),
        *samples("parquet", "kafka", 1.0),
        *samples("cold", "tailrace", 1.1),
        *samples("cold", "kafka", 1.0),
    ]
    found.codec = [
        CodecRates(accelerated=True, decode_per_s=4_999_999, encode_per_s=1),
        CodecRates(accelerated=False, decode_per_s=1_499_999, encode_per_s=1),
    ]
    found.long_backlog = Peak(worker_bytes=800_000_000)
    assert {met for _, met in values(found).values()} == {False}


def test_without_sparks_own_source_there_are_no_ratios_to_it() -> None:
    found = run()
    found.samples = [each for each in found.samples if each.form == "tailrace"]
    found.codec = found.codec[1:]
    found.short_backlog = None
    found.missing["kafka"] = "mvn is not installed"
    assert [key for key, (value, _) in values(found).items() if value is not None] == ["decode_pure"]
    assert report(found).notes() == ["Not measured, kafka: mvn is not installed"]


def test_of_nothing_measured_there_is_a_report_too() -> None:
    nothing = report(SparkRun(failure="no broker"))
    assert nothing.rows() == []
    assert nothing.stopped == "no broker"
    assert {met for _, met in values(SparkRun()).values()} == {None}
    assert "no broker" in write_spark_page(nothing, measured_at=MEASURED_AT)
    assert report(SparkRun(interrupted=True)).stopped == "interrupted"


def test_json_has_every_round_and_the_medians() -> None:
    row = json.loads(json.dumps(report(run()).as_row()))
    loads = {each["name"]: each for each in row["loads"]}
    assert loads["noop"]["tailrace"] == [2e6, 1e6, 3e6]
    assert loads["noop"]["unit"] == "rows/s" and loads["cold"]["unit"] == "s"
    assert row["medians"]["noop"] == {"tailrace": 2e6, "kafka": 0.8e6}
    assert row["medians"]["copy"] == {"tailrace": None, "kafka": None}
    assert row["memory"] == {
        "short_backlog_mb": 200.0,
        "long_backlog_mb": 220.0,
        "long_backlog_all_mb": 400.0,
    }
    assert row["goals"][0]["met"] is True


def test_rows_leave_out_what_was_not_measured() -> None:
    rows = {row["load"]: row for row in report(run()).rows()}
    assert rows["topic to noop"] == {
        "load": "topic to noop",
        "tailrace": "2,000,000",
        "spark-sql-kafka": "800,000",
        "ratio": "2.50",
        "unit": "rows/s",
    }
    assert rows["decode, compiled"]["tailrace"] == "6,000,000"
    assert "topic to topic" not in rows


def test_the_page_has_goals_bars_and_no_script() -> None:
    found = run()
    found.missing["copy kafka"] = "<broken>"
    text = write_spark_page(report(found), measured_at=MEASURED_AT)
    assert text.count('<span class="met">met</span>') == len(GOALS)
    assert 'aria-label="topic to noop, rows/s"' in text
    assert "topic to topic, rows/s" not in text  # no chart of nothing
    assert "<broken>" not in text and "&lt;broken&gt;" in text
    assert "<script" not in text


def test_markdown_has_goals_and_figures() -> None:
    text = as_markdown(report(run()), measured_at=MEASURED_AT)
    assert "| read to noop, against Spark's Kafka source" in text
    assert "2026-03-09 17:04 UTC" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)


def test_columns_of_markdown_are_padded() -> None:
    assert table(["a", "b"], [["long", "1"], ["x", "1,000"]]).splitlines() == [
        "| a    |     b |",
        "| ---- | ----: |",
        "| long |     1 |",
        "| x    | 1,000 |",
    ]


@pytest.mark.parametrize("quick", [True, False])
def test_the_command_line_changes_the_plan(quick: bool) -> None:
    plain = QUICK if quick else FULL
    assert plan_of(quick=quick, records=None, rounds=None, master=None) == plain
    changed = plan_of(quick=quick, records=7, rounds=9, master="local[4]")
    assert changed == replace(plain, records=7, rounds=9, master="local[4]")
