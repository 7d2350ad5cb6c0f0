"""Types of a query's values on a real Spark: declared, guessed and kept, and what does not fit them."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.schema_registry import serving

import tailrace
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.sql import SqlConfig, SqlDone, sql
from tailrace.spark.pipelines.sql_types import TYPES_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "city STRING, cents BIGINT"
SUMS = "SELECT data.city AS key, sum(data.cents) AS cents FROM STREAM orders GROUP BY data.city"
CENTS = "SELECT offset, data.cents FROM STREAM orders"
RUN_S = 120.0


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


class Seen:
    """What a run shows and tells."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.told: list[Progress] = []
        self.on_tell: Callable[[Progress], None] = lambda _progress: None

    def show(self, _batch: int, names: Sequence[str], rows: Sequence[Sequence[object]], _more: bool) -> None:
        self.rows += [dict(zip(names, row, strict=True)) for row in rows]

    def observe(self, progress: Progress) -> None:
        self.told.append(progress)
        self.on_tell(progress)

    @property
    def notices(self) -> str:
        return "\n".join(each.notice for each in self.told if each.notice)


def run(
    spark: SparkSession,
    broker: tailrace.Broker,
    query: str,
    *,
    seen: Seen | None = None,
    stop: threading.Event | None = None,
    once: bool = True,
    **fields: object,
) -> tuple[SqlDone, Seen]:
    seen = seen or Seen()
    config = SqlConfig(bootstrap=broker.bootstrap_servers, query=query, once=once, **fields)  # type: ignore[arg-type]
    return sql(config, spark=spark, observe=seen.observe, stop=stop, show=seen.show), seen


def put(broker: tailrace.Broker, *values: object, topic: str = "orders") -> None:
    for value in values:
        broker.produce(topic, value if isinstance(value, bytes) else json.dumps(value).encode(), key=b"k")


def sums(broker: tailrace.Broker) -> list[object]:
    return [json.loads(each.value or b"").get("cents") for each in broker.read("sums")]


def test_declared_columns_are_the_types_of_data(spark: SparkSession, broker: tailrace.Broker) -> None:
    put(broker, {"order": "a", "total": 1.1}, {"order": 7, "total": "2.20"}, {"total": None})
    _, seen = run(
        spark,
        broker,
        "SELECT data.order, data.total FROM orders ORDER BY offset",
        schema={"orders": "order STRING, total DECIMAL(12,2)"},
    )
    assert seen.rows == [
        {"order": "a", "total": Decimal("1.10")},
        {"order": "7", "total": Decimal("2.20")},
        {"order": None, "total": None},
    ]
    assert not seen.notices


def test_a_value_that_does_not_fit_fails_the_query_and_is_named(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    cases = [
        ({"city": "Ulm", "cents": "5"}, "cents does not fit"),
        (b"no json", "it is not a JSON object of these types"),
        (b"", "it is not a JSON object of these types"),
        (b"[1]", "it is not a JSON object of these types"),
        ({"city": "Ulm"}, "cents is missing"),
    ]
    put(broker, *(value for value, _ in cases))
    schema = {"orders": "city STRING, cents BIGINT NOT NULL"}
    for offset, (_, reason) in enumerate(cases):
        query = f"SELECT data.city FROM orders WHERE offset = {offset}"
        message = f"orders-0 at offset {offset}: {reason}.*--bad-rows null"
        with pytest.raises(TailraceError, match=message) as caught:
            run(spark, broker, query, schema=schema)
        assert "org.apache" not in str(caught.value)
    with pytest.raises(TailraceError, match="sql: orders-0 at offset 0: cents does not fit"):
        run(spark, broker, SUMS, schema=schema)


def test_a_value_that_no_row_uses_does_not_fail(spark: SparkSession, broker: tailrace.Broker) -> None:
    put(broker, {"city": "Ulm", "cents": 5}, b"no json")
    schema = {"orders": COLUMNS}
    assert len(run(spark, broker, "SELECT key FROM STREAM orders", schema=schema)[1].rows) == 2
    assert len(run(spark, broker, CENTS + " WHERE offset = 0", schema=schema)[1].rows) == 1


def test_bad_rows_can_be_null_and_are_counted(spark: SparkSession, broker: tailrace.Broker) -> None:
    put(broker, {"city": "Ulm", "cents": 5}, {"city": "Ulm", "cents": "x"}, b"no json")
    broker.produce("orders", None, key=b"a tombstone fits")
    done, seen = run(spark, broker, CENTS, schema={"orders": COLUMNS}, bad_rows="null")
    assert [row["cents"] for row in seen.rows] == [5, None, None, None]
    assert done.bad_rows == 2
    assert "2 bad rows (null)" in seen.told[-1].note
    done, _ = run(spark, broker, CENTS.replace("STREAM", ""), schema={"orders": COLUMNS}, bad_rows="null")
    assert done.bad_rows == 2


@pytest.mark.parametrize("stream", ["STREAM ", ""])
def test_bad_rows_can_go_to_a_topic_with_their_reason(
    spark: SparkSession, broker: tailrace.Broker, stream: str, tmp_path: Path
) -> None:
    put(broker, {"city": "Ulm", "cents": 5})
    broker.produce(
        "orders", b'{"cents": "x"}', key=b"bad", headers=[("h", b"1")], timestamp=1_700_000_000_000
    )
    broker.create_topic("rejected")
    query = CENTS.replace("STREAM ", stream)
    fields: dict[str, Any] = {"schema": {"orders": COLUMNS}, "bad_rows": "topic:rejected"}
    fields["to"] = str(tmp_path / "out")
    done, _ = run(spark, broker, query, **fields)
    assert pq.read_table(tmp_path / "out").column("cents").to_pylist() == [5]
    assert done.bad_rows == 1
    if stream:
        run(spark, broker, query, **fields)
    (record,) = broker.read("rejected")
    assert (record.key, record.value, record.timestamp) == (b"bad", b'{"cents": "x"}', 1_700_000_000_000)
    assert dict(record.headers) == {
        "h": b"1",
        "_dlq_topic": b"orders",
        "_dlq_partition": b"0",
        "_dlq_offset": b"1",
        "_dlq_reason": b"cents does not fit",
    }


def test_a_guess_is_shown_and_kept_over_a_restart(
    spark: SparkSession, broker: tailrace.Broker, state_home: Path
) -> None:
    """With types of its own every run, the second one would fail for ever: the state has other types."""
    broker.create_topic("sums")
    put(broker, {"city": "Ulm", "cents": 5})
    _, seen = run(spark, broker, SUMS, to="topic:sums", name="sums")
    assert "guessed from its newest values: city STRING, cents BIGINT" in seen.notices
    put(broker, {"city": "Ulm", "cents": 1.5})
    with pytest.raises(TailraceError, match="orders-0 at offset 1: cents does not fit"):
        run(spark, broker, SUMS, to="topic:sums", name="sums")
    done, _ = run(spark, broker, SUMS, to="topic:sums", name="sums", bad_rows="null")
    assert done.bad_rows == 1
    put(broker, {"city": "Ulm", "cents": 6})
    run(spark, broker, SUMS, to="topic:sums", name="sums")
    assert sums(broker) == [5, None, 11]  # the bad row has no city
    assert (state_home / "tailrace" / "sql" / "sums" / TYPES_FILE).exists()


def test_types_are_widened_on_command_and_refused_ones_are_not_kept(
    spark: SparkSession, broker: tailrace.Broker, state_home: Path
) -> None:
    broker.create_topic("copy")
    put(broker, {"city": "Ulm", "cents": 5})
    copy = "SELECT to_json(data) AS value FROM STREAM orders"
    run(spark, broker, copy, to="topic:copy", name="copy")
    put(broker, {"cents": 1.5, "new": True})
    run(spark, broker, copy, to="topic:copy", name="copy", widen=True)
    assert json.loads(list(broker.read("copy"))[-1].value or b"") == {"cents": 1.5, "new": True}
    put(broker, {"cents": 2.5})
    run(spark, broker, copy, to="topic:copy", name="copy")
    assert json.loads(list(broker.read("copy"))[-1].value or b"") == {"cents": 2.5}
    # A sum of another type does not go on from the state that there is.
    broker.create_topic("sums")
    declared = {"orders": "city STRING, cents DECIMAL(9,1)"}
    run(spark, broker, SUMS, to="topic:sums", name="sums", schema=declared)
    kept = state_home / "tailrace" / "sql" / "sums" / TYPES_FILE
    before = kept.read_text()
    put(broker, {"cents": 2.5})
    declared = {"orders": "city STRING, cents DOUBLE"}
    with pytest.raises(TailraceError):
        run(spark, broker, SUMS, to="topic:sums", name="sums", widen=True, schema=declared)
    assert kept.read_text() == before
    run(spark, broker, SUMS, to="topic:sums", name="sums")


def test_declared_types_that_changed_are_refused(spark: SparkSession, broker: tailrace.Broker) -> None:
    put(broker, {"cents": 5})
    broker.create_topic("copy")
    run(spark, broker, CENTS, to="topic:copy", schema={"orders": "cents BIGINT"})
    with pytest.raises(ConfigError, match="declared as cents DOUBLE, and the query began with cents BIGINT"):
        run(spark, broker, CENTS, to="topic:copy", schema={"orders": "cents DOUBLE"})


def test_a_folder_keeps_its_columns(spark: SparkSession, broker: tailrace.Broker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(broker, {"cents": 5})
    run(spark, broker, CENTS, to=str(out), schema={"orders": "cents BIGINT"})
    put(broker, {"cents": 1.5})
    with pytest.raises(ConfigError, match=r"cents:bigint>, and the query gives .*cents:double>"):
        run(spark, broker, CENTS, to=str(out), schema={"orders": "cents DOUBLE"}, widen=True)
    done, _ = run(spark, broker, CENTS, to=str(out), bad_rows="null")
    assert done.bad_rows == 1
    assert sorted(pq.read_table(out).column("cents").to_pylist(), key=str) == [5, None]


def follow(
    spark: SparkSession,
    broker: tailrace.Broker,
    query: str,
    *,
    act: Callable[[Progress], None],
    rows: int,
    **fields: object,
) -> Seen:
    """Run a stream that has not ended until it has read some rows."""
    stop, seen = threading.Event(), Seen()
    timer = threading.Timer(RUN_S, stop.set)

    def on_tell(progress: Progress) -> None:
        act(progress)
        if progress.rows >= rows:
            stop.set()

    seen.on_tell = on_tell
    timer.start()
    try:
        run(spark, broker, query, seen=seen, stop=stop, once=False, **fields)
    finally:
        timer.cancel()
    return seen


def test_a_query_with_declared_types_runs_before_its_topic_exists(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    """It reads the topic from the beginning when it comes, though it starts at the latest records."""

    def act(progress: Progress) -> None:
        if progress.batch == 1:
            broker.create_topic("orders", partitions=2)
            put(broker, {"cents": 5}, {"cents": 6})

    schema = {"orders": "cents BIGINT"}
    seen = follow(spark, broker, CENTS, act=act, rows=2, schema=schema, starting="latest")
    assert sorted(str(row["cents"]) for row in seen.rows) == ["5", "6"]


def test_a_query_without_types_waits_for_the_first_records(
    spark: SparkSession, broker: tailrace.Broker
) -> None:
    notices: list[str] = []

    def act(progress: Progress) -> None:
        notices.append(progress.notice)
        if "there is no topic orders" in progress.notice:
            broker.create_topic("orders")
        if "orders has no records" in progress.notice:
            put(broker, {"cents": 5})

    seen = follow(spark, broker, CENTS, act=act, rows=1)
    assert [row["cents"] for row in seen.rows] == [5]
    assert [each.partition(":")[0] for each in notices if each] == [
        "there is no topic orders",
        "orders has no records",
        "orders",
    ]


def test_a_query_that_ends_does_not_wait(spark: SparkSession, broker: tailrace.Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(ConfigError, match="orders has no records that tell the types of data"):
        run(spark, broker, CENTS)
    assert run(spark, broker, CENTS, schema={"orders": "cents BIGINT"})[0].rows == 0
    assert run(spark, broker, "SELECT key FROM STREAM orders")[0].rows == 0


def test_columns_that_spark_cannot_read_are_named(spark: SparkSession, broker: tailrace.Broker) -> None:
    put(broker, {"cents": 5})
    with pytest.raises(ConfigError, match="the schema of orders is not a list of columns: 'cents BIGIN'"):
        run(spark, broker, CENTS, schema={"orders": "cents BIGIN"})


def avro_order(schema: dict[str, Any], schema_id: int, value: dict[str, object]) -> bytes:
    fastavro = pytest.importorskip(
        "fastavro", reason="fastavro is not installed: pip install 'tailrace[avro]'"
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def test_the_types_of_a_registry_are_kept_when_it_has_newer_ones(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    fields = [{"name": "city", "type": "string"}, {"name": "cents", "type": "int"}]
    old = {"type": "record", "name": "Order", "fields": fields}
    added = {"name": "more", "type": "string", "default": "-"}
    new = {"type": "record", "name": "Order", "fields": [*fields, added]}
    everything = "SELECT offset, data.* FROM STREAM orders"
    with serving() as registry:
        setting: dict[str, Any] = {"schema": {"orders": registry.url}, "checkpoint": str(tmp_path / "cp")}
        first = registry.register("orders-value", old)
        broker.produce("orders", avro_order(old, first, {"city": "Ulm", "cents": 5}))
        _, seen = run(spark, broker, everything, **setting)
        assert seen.rows == [{"offset": 0, "city": "Ulm", "cents": 5}]
        second = registry.register("orders-value", new)
        broker.produce("orders", avro_order(new, second, {"city": "Bonn", "cents": 6, "more": "x"}))
        broker.produce("orders", b"no avro")
        done, seen = run(spark, broker, everything, **setting, bad_rows="null")
        assert seen.rows == [
            {"offset": 1, "city": "Bonn", "cents": 6},
            {"offset": 2, "city": None, "cents": None},
        ]
        assert done.bad_rows == 1
        broker.produce("orders", avro_order(old, first, {"city": "Bern", "cents": 7}))
        _, seen = run(spark, broker, everything, **setting, widen=True)
        assert seen.rows == [{"offset": 3, "city": "Bern", "cents": 7, "more": "-"}]
