"""Where rows go: by column, by key as the Java client does it, or in turn; always in their order."""

from __future__ import annotations

import random
from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.sink.columns import Columns
from tailrace.spark.sink.routing import BadRow, Router
from tailrace.wire.kafka.partitioner import partition_of_key

Placed = dict[tuple[str, int], list[bytes]]


def columns_of(batch: pa.RecordBatch, *, topic: str | None = "orders") -> Columns:
    names = batch.schema.names
    content = tuple(name for name in ("key", "value", "headers", "timestamp") if name in names)
    return Columns(content=content, topic=topic, has_partition="partition" in names)


def router_for(
    batch: pa.RecordBatch, *, topic: str | None = "orders", partitions: int = 4, stick_bytes: int = 1 << 20
) -> Router:
    return Router(
        columns_of(batch, topic=topic),
        lambda _topic: partitions,
        stick_bytes=stick_bytes,
        chooser=random.Random(1),
    )


def placed(router: Router, batch: pa.RecordBatch) -> Placed:
    found: Placed = defaultdict(list)
    for topic, partition, rows in router.route(batch):
        found[topic, partition] += rows.column("value").to_pylist()
    return dict(found)


@given(
    keys=st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=50),
    partitions=st.integers(min_value=1, max_value=7),
)
def test_keys_go_where_the_java_client_puts_them_in_their_order(
    keys: list[bytes | None], partitions: int
) -> None:
    values = [b"%d" % number for number in range(len(keys))]
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    found = placed(router_for(batch, partitions=partitions), batch)
    assert sorted(value for part in found.values() for value in part) == sorted(values)
    for (_, partition), part in found.items():
        assert [int(value) for value in part] == sorted(int(value) for value in part)
        for value in part:
            key = keys[int(value)]
            assert key is None or partition_of_key(key, partitions=partitions) == partition


def test_text_keys_go_where_their_bytes_do() -> None:
    batch = pa.record_batch({"key": pa.array(["ä", "b", "c"]), "value": pa.array([b"1", b"2", b"3"])})
    found = placed(router_for(batch), batch)
    for key, value in (("ä", b"1"), ("b", b"2"), ("c", b"3")):
        assert value in found["orders", partition_of_key(key.encode(), partitions=4)]


def test_the_column_partition_wins_over_the_key_and_null_leaves_it_to_the_key() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array([b"same"] * 3),
            "partition": pa.array([3, None, 0], pa.int32()),
            "value": pa.array([b"1", b"2", b"3"]),
        }
    )
    found = placed(router_for(batch), batch)
    by_key = partition_of_key(b"same", partitions=4)
    assert b"1" in found["orders", 3] and b"3" in found["orders", 0] and b"2" in found["orders", by_key]


@pytest.mark.parametrize(
    ("partition", "count", "said"),
    [
        (4, 4, "says 4, and topic orders has partitions 0 to 3"),
        (-1, 4, "says -1, and topic orders has partitions 0 to 3"),
        (1, 1, "says 1, and topic orders has partition 0 only"),
    ],
)
def test_a_partition_out_of_range_is_an_error(partition: int, count: int, said: str) -> None:
    batch = pa.record_batch(
        {"value": pa.array([b"1", b"2"]), "partition": pa.array([0, partition], pa.int32())}
    )
    with pytest.raises(BadRow, match=said):
        placed(router_for(batch, partitions=count), batch)


def test_rows_without_key_stick_for_a_batch_of_bytes_and_move_on() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 96] * 100)})  # 100 bytes a row, offsets included
    router = router_for(batch, stick_bytes=25 * (batch.nbytes // 100))
    found = placed(router, batch)
    assert {partition: len(rows) for (_, partition), rows in found.items()} == dict.fromkeys(range(4), 25)


def test_rows_without_key_stick_across_small_batches() -> None:
    batch = pa.record_batch({"value": pa.array([b"1"])})
    router = router_for(batch)
    assert len({key for _ in range(50) for key in placed(router, batch)}) == 1


def test_tasks_begin_with_different_partitions() -> None:
    batch = pa.record_batch({"value": pa.array([b"1"])})
    columns = columns_of(batch)
    routers = [Router(columns, lambda _topic: 4, stick_bytes=100) for _ in range(200)]
    assert {key for router in routers for key in placed(router, batch)} == {
        ("orders", each) for each in range(4)
    }


def test_the_column_topic_decides_and_each_topic_is_asked_about_once() -> None:
    batch = pa.record_batch(
        {"topic": pa.array(["b", "a", "b", "a"]), "value": pa.array([b"1", b"2", b"3", b"4"])}
    )
    asked: list[str] = []

    def count(topic: str) -> int:
        asked.append(topic)
        return 1

    router = Router(columns_of(batch, topic=None), count, stick_bytes=100)
    assert placed(router, batch) == {("a", 0): [b"2", b"4"], ("b", 0): [b"1", b"3"]}
    placed(router, batch)
    assert sorted(asked) == ["a", "b"]


def test_the_option_topic_wins_over_the_column() -> None:
    batch = pa.record_batch({"topic": pa.array(["b", None]), "value": pa.array([b"1", b"2"])})
    assert placed(router_for(batch, partitions=1), batch) == {("orders", 0): [b"1", b"2"]}


def test_a_row_without_topic_is_an_error() -> None:
    batch = pa.record_batch({"topic": pa.array(["b", None]), "value": pa.array([b"1", b"2"])})
    with pytest.raises(BadRow, match=r"1 rows have null in column 'topic'.*option topic"):
        placed(router_for(batch, topic=None), batch)


@pytest.mark.parametrize("topic", ["orders", None])
def test_no_rows_go_nowhere(topic: str | None) -> None:
    batch = pa.record_batch({"topic": pa.array([], pa.string()), "value": pa.array([], pa.binary())})
    assert placed(router_for(batch, topic=topic), batch) == {}
