"""The transaction benchmark: its goals and its table from figures, and short runs against a broker here."""

from __future__ import annotations

from typing import Any

import pytest
from bench.transactions import client
from bench.transactions.load import PRODUCERS, judge, percentiles, plan_loads
from bench.transactions.table import as_markdown

import tailrace


def figures(per_s: float, p99_ms: float) -> dict[str, dict[str, float]]:
    return {load.name: {"per_s": per_s, "p50_ms": 1.0, "p99_ms": p99_ms} for load in plan_loads()}


def test_goals_hold_ours_against_theirs() -> None:
    goals = judge({"tailrace": figures(200, 5), "kafka": figures(100, 9)})
    assert len(goals) == 2 * 2 * len(PRODUCERS) + 1
    by_text = {goal.text: goal for goal in goals}
    assert by_text["confluent-kafka, 10 producers: transactions/s of Kafka's"].verdict == "met"
    assert by_text["confluent-kafka, 10 producers: p99 of Kafka's"].verdict == "missed"
    assert goals[-1].value == 1.0 and goals[-1].verdict == "met"


def test_what_is_missing_is_not_measured() -> None:
    goals = judge({"tailrace": figures(200, 5)})
    assert {goal.verdict for goal in goals[:-1]} == {"not measured"}
    assert judge({})[-1].verdict == "not measured"


def test_percentiles_are_in_milliseconds() -> None:
    assert percentiles([number / 1000 for number in range(100, 0, -1)]) == {
        "p50_ms": pytest.approx(51),
        "p99_ms": pytest.approx(100),
    }
    assert percentiles([]) == {}


def test_the_table_says_what_was_left_out() -> None:
    machine = dict.fromkeys(("cpu", "cores", "kernel", "file_system", "python"), "some")
    report: dict[str, Any] = {
        "ended": "today",
        "machine": machine,
        "rounds": 1,
        "seconds": 1.0,
        "load_before": 0.1,
        "load_after": 0.2,
        "skipped": {"kafka": "no java"},
        "figures": {"tailrace": figures(1234.5, 5)},
    }
    text = as_markdown(report)
    assert "- not measured: kafka: no java" in text and "1,234" in text


@pytest.mark.parametrize(
    "job",
    [
        {"role": "tv1", "producers": 2},
        {"role": "tv2", "producers": 2},
        {"role": "lag", "transactional": True, "isolation": 1},
    ],
    ids=lambda job: job["role"],
)
def test_a_load_measures_a_broker(job: dict[str, Any]) -> None:
    pytest.importorskip("confluent_kafka")
    with tailrace.Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        found = client.measure({**job, "port": port, "topic": "bench", "warm_s": 0.0, "seconds": 0.3})
    assert found["p50_ms"] > 0
    assert job["role"] == "lag" or (found["per_s"] > 0 and found["repeats"] == 0)
