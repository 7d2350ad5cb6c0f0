"""Queries over topics on a real Spark: as tables and as streams, to rows, to a topic and into a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.sql import SqlConfig, SqlDone, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_700_000_000_000


class Shown:
    """What would be on the terminal."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.more = False

    def __call__(
        self, batch: int, names: Sequence[str], rows: Sequence[Sequence[object]], more: bool
    ) -> None:
        self.rows += [dict(zip(names, row, strict=True)) for row in rows]
        self.more = self.more or more


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def order(broker: tailrace.Broker, city: str, cents: int, *, topic: str = "orders", at_ms: int = T0) -> None:
    value = json.dumps({"city": city, "cents": cents}).encode()
    broker.produce(topic, value, key=city.encode(), timestamp=at_ms)


def run(spark: SparkSession, broker: tailrace.Broker, query: str, **fields: object) -> tuple[SqlDone, Shown]:
    shown = Shown()
    told = fields.pop("told", None)
    config = SqlConfig(bootstrap=broker.bootstrap_servers, query=query, once=True, **fields)  # type: ignore[arg-type]
    observe = told.append if isinstance(told, list) else lambda _progress: None
    return sql(config, spark=spark, observe=observe, show=shown), shown


def forget_last_batch(out: Path) -> None:
    """As if the run was killed when the batch was in its folder, and Spark had not noted that yet."""
    last = max((out / "_checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def test_a_topic_is_a_table_with_text_and_json(spark: SparkSession, broker: tailrace.Broker) -> None:
    order(broker, "Ulm", 5)
    broker.produce("orders", b"no json", key=None, headers=[("h", b"1")])
    broker.produce("orders", b'{"city": "broken', key=b"k")
    _, shown = run(
        spark,
        broker,
        "SELECT key, value, data, data.cents AS cents, topic, partition, offset, headers FROM orders"
        " ORDER BY offset",
        bad_rows="null",
    )
    assert [row["key"] for row in shown.rows] == ["Ulm", None, "k"]
    assert [row["cents"] for row in shown.rows] == [5, None, None]
    assert [row["data"] is None for row in shown.rows] == [False, True, True]
    assert (shown.rows[1]["value"], shown.rows[1]["offset"], shown.rows[1]["topic"]) == (
        "no json",
        1,
        "orders",
    )
    assert len(shown.rows[1]["headers"]) == 1  # type: ignore[arg-type]


def test_an_aggregate_of_a_stream_goes_to_a_topic_as_json(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    broker.create_topic("my-orders.v1")
    for city, cents in (("Ulm", 5), ("Bonn", 7), ("Ulm", 6)):
        order(broker, city, cents, topic="my-orders.v1")
    broker.create_topic("sums")
    told: list[Progress] = []
    query = "SELECT data.city AS key, sum(data.cents) AS cents FROM STREAM `my-orders.v1` GROUP BY data.city"
    done, _ = run(spark, broker, query, to="topic:sums", told=told)
    found = {each.key: json.loads(each.value or b"") for each in broker.read("sums")}
    assert found == {b"Ulm": {"key": "Ulm", "cents": 11}, b"Bonn": {"key": "Bonn", "cents": 7}}
    assert (done.rows, done.offsets) == (3, {"my-orders.v1": {0: 3}})
    assert (told[-1].rows, told[-1].lag, told[-1].offsets) == (3, 0, {"my-orders.v1": {0: 3}})
    order(broker, "Ulm", 1, topic="my-orders.v1")
    again, _ = run(spark, broker, query, to="topic:sums")
    assert again.rows == 1
    assert [json.loads(each.value or b"") for each in broker.read("sums")][-1] == {"key": "Ulm", "cents": 12}


def test_an_aggregate_shows_some_rows_and_keeps_count_of_all(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    """Spark stores the state of those groups, too, that are not shown."""
    for at in range(40):
        order(broker, f"city {at}", 1)
    query = "SELECT key, count(*) AS n FROM STREAM orders GROUP BY key"
    done, shown = run(spark, broker, query, rows_shown=1)
    assert done.rows == 40
    assert [row["n"] for row in shown.rows] == [1]
    assert shown.more


def test_a_stream_into_a_folder_goes_on_after_a_restart(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    query = "SELECT offset, data.cents FROM STREAM orders WHERE data.cents > 1"
    for cents in (1, 2, 3):
        order(broker, "Ulm", cents)
    run(spark, broker, query, to=str(out))
    for cents in (0, 4):
        order(broker, "Ulm", cents)
    done, _ = run(spark, broker, query, to=str(out))
    assert done.rows == 2
    table = pq.read_table(out)
    assert sorted(table.column("cents").to_pylist()) == [2, 3, 4]
    forget_last_batch(out)
    run(spark, broker, query, to=str(out))
    assert sorted(pq.read_table(out).column("cents").to_pylist()) == [2, 3, 4]


def test_a_stream_runs_until_it_is_stopped(spark: SparkSession, broker: tailrace.Broker) -> None:
    order(broker, "Ulm", 1)
    stop, shown = threading.Event(), Shown()

    def observe(progress: Progress) -> None:
        if progress.rows == 1:
            order(broker, "Bonn", 2)
        if progress.rows == 2:
            stop.set()

    config = SqlConfig(bootstrap=broker.bootstrap_servers, query="SELECT key FROM STREAM orders")
    done = sql(config, spark=spark, observe=observe, stop=stop, show=shown)
    assert [row["key"] for row in shown.rows] == ["Ulm", "Bonn"]
    assert done.rows == 2


def test_windows_are_final_when_the_watermark_has_passed(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    for minute in (0, 1, 9, 30):
        order(broker, "Ulm", 1, at_ms=T0 + minute * 60_000)
    query = "SELECT count(*) AS n FROM STREAM orders GROUP BY window(timestamp, '5 minutes')"
    run(spark, broker, query, to=str(tmp_path / "out"), watermark="1 minute", output_mode="append")
    assert sorted(pq.read_table(tmp_path / "out").column("n").to_pylist()) == [1, 2]


def test_sessions_are_shown_when_they_are_final(spark: SparkSession, broker: tailrace.Broker) -> None:
    for minute in (0, 3, 20, 60):
        order(broker, "Ulm", 1, at_ms=T0 + minute * 60_000)
    query = """SELECT key, count(*) AS n FROM STREAM orders
        GROUP BY key, session_window(timestamp, '5 minutes')"""
    _, shown = run(spark, broker, query, watermark="1 minute")
    assert sorted(str(row["n"]) for row in shown.rows) == ["1", "2"]


def test_an_aggregate_into_a_folder_goes_on_after_a_batch_that_is_given_again(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    """Spark stores the state of that batch once more, or refuses to go on."""
    out = tmp_path / "out"
    query = "SELECT count(*) AS n FROM STREAM orders GROUP BY window(timestamp, '5 minutes')"
    for minute in (0, 1, 9):
        order(broker, "Ulm", 1, at_ms=T0 + minute * 60_000)
    run(spark, broker, query, to=str(out), watermark="1 minute")
    forget_last_batch(out)
    order(broker, "Ulm", 1, at_ms=T0 + 30 * 60_000)
    run(spark, broker, query, to=str(out), watermark="1 minute")
    assert sorted(pq.read_table(out).column("n").to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM STREAM order", r"no topic order: did you mean orders\?"),
        ("SELECT * FROM odrers", r"no topic odrers: did you mean orders\?"),
        ("SELECT nothing FROM orders", "nothing"),
        ("SELEC * FROM orders", "(?i)syntax error"),
        ("SELECT * FROM STREAM orders ORDER BY offset", "(?i)sort"),
    ],
)
def test_a_wrong_query_is_told_shortly(
    spark: SparkSession, broker: tailrace.Broker, query: str, message: str
) -> None:
    order(broker, "Ulm", 1)
    with pytest.raises(ConfigError, match=message) as caught:
        run(spark, broker, query)
    assert len(str(caught.value)) < 600
    assert "org.apache.spark" not in str(caught.value)


def test_a_folder_whose_checkpoint_is_gone_is_refused(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    order(broker, "Ulm", 1)
    query, out = "SELECT key FROM STREAM orders", str(tmp_path / "out")
    run(spark, broker, query, to=out, checkpoint=str(tmp_path / "one"))
    with pytest.raises(ConfigError, match="whose checkpoint is gone"):
        run(spark, broker, query, to=out, checkpoint=str(tmp_path / "two"))
