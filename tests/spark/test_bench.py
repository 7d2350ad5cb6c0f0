"""The loads of `tailrace bench spark` over a small topic: each counts what arrived, and leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.bench.spark import load, run
from tailrace.bench.spark.connector import NoConnector
from tailrace.bench.spark.filling import fill_topic
from tailrace.bench.spark.load import OURS, Scene
from tailrace.bench.spark.micro_batch import measure_trigger_ms
from tailrace.bench.spark.run import KINDS, RATES, Kind, SparkPlan, run_spark_bench
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.subject import find_subject
from tailrace.model import TailraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 3_000


@pytest.fixture
def scene(spark: SparkSession, broker: tailrace.Broker, tmp_path: Path) -> Scene:
    broker.create_topic("measured", 2)
    fill_topic(broker.bootstrap_servers, "measured", partitions=2, records=RECORDS)
    place = tmp_path / "place"
    place.mkdir()
    return Scene(
        spark=spark,
        subject=find_subject(broker.bootstrap_servers, timeout_s=30),
        topic="measured",
        partitions=2,
        records=RECORDS,
        place=place,
    )


@pytest.mark.parametrize("kind", RATES, ids=lambda kind: kind.name)
def test_a_load_takes_its_time_and_leaves_nothing(scene: Scene, kind: Kind) -> None:
    assert RATES[kind](scene, OURS) > 0
    assert list(scene.place.iterdir()) == []


@pytest.mark.parametrize("kind", [kind for kind in RATES if kind is not run.NOOP], ids=lambda kind: kind.name)
def test_a_load_that_loses_a_record_is_none(scene: Scene, kind: Kind) -> None:
    with pytest.raises(LoadError, match="3,000 records, and the topic has 3,001"):
        RATES[kind](replace(scene, records=RECORDS + 1), OURS)
    assert list(scene.place.iterdir()) == []


def test_a_count_that_is_not_the_topics_is_told(scene: Scene) -> None:
    assert load.count(scene, OURS) > 0
    with pytest.raises(LoadError, match="3,000 records"):
        load.count(replace(scene, records=1), OURS)


def test_triggers_are_timed_by_spark(
    scene: Scene, broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.bench.spark.micro_batch._WARM", 1)
    assert measure_trigger_ms(scene, OURS, batches=2) > 1
    monkeypatch.setattr("tailrace.bench.spark.micro_batch._WAIT_S_MAX", 1.0)
    with pytest.raises(LoadError, match="micro-batches, and not 101"):
        measure_trigger_ms(scene, OURS, batches=100)


def test_a_whole_run_measures_ours_and_says_what_is_missing(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "find_connector", _no_jars)
    monkeypatch.setattr("tailrace.bench.spark.micro_batch._WARM", 0)
    monkeypatch.setattr(run, "measure_holding", _no_children)
    monkeypatch.setattr(run, "measure_twin", lambda **_given: None)
    plan = SparkPlan(records=8_000, rounds=1, cold_rounds=0, triggers=1)
    told: list[str] = []
    place = tmp_path / "place"
    place.mkdir()
    subject = find_subject(broker.bootstrap_servers, timeout_s=30)

    found = run_spark_bench(subject, plan, place=place, note=told.append)

    assert (found.failure, found.interrupted, found.topics_left) == (None, False, [])
    measured = {each.load for each in found.samples}
    assert measured == {kind.name for kind in KINDS} - {"cold"}
    assert {each.form for each in found.samples} == {OURS}
    assert found.missing["kafka"] == "no jars here"
    assert found.missing["memory"] == "no children here"
    assert set(found.missing) == {"kafka", "memory"}
    assert list(place.iterdir()) == []
    assert "warming up" in told


def _no_jars(_spark_version: str) -> None:
    raise NoConnector("no jars here")


def _no_children(*_words: object, **_given: object) -> None:
    raise TailraceError("no children here")
