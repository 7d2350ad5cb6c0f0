"""Replays from a small lake into a broker in this process; tasks run here, without Spark."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.link import close_links
from tailrace.spark.pipelines import replay as replay_module
from tailrace.spark.pipelines import replay_task
from tailrace.spark.pipelines.progress import Progress, ignore
from tailrace.spark.pipelines.replay import ReplayConfig, Replayed, replay
from tailrace.spark.pipelines.replay_target import KEEP_ALL
from tailrace.spark.producing import BatchProducer

DAY_MS = 86_400_000
T0 = 1_700_000_000_000

Row = Any
Archive = Callable[..., Path]


class Killed(Exception):
    """What stands for the end of a process."""


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running
        close_links()


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run one after the other in this thread; what they return goes through JSON as with Spark."""

    def spread(
        _spark: object, work: Callable[[Any], Any], tasks: Sequence[Any], *, result: type[Any]
    ) -> list[Any]:
        return [msgspec.json.decode(msgspec.json.encode(work(task)), type=result) for task in tasks]

    monkeypatch.setattr(replay_module, "spread", spread)
    monkeypatch.setattr(replay_module, "count_cores", lambda _spark: 2)
    monkeypatch.setattr(replay_module, "_QUIET_S", 0.01)
    monkeypatch.setattr(replay_module, "_POLL_S", 0.05)


@pytest.fixture
def rows(row: type[Row]) -> list[Row]:
    """Three partitions with everything that a record can have; offsets have gaps, times jump back."""
    odd: list[Row] = [
        row(offset=0, time_ms=T0, key=b"k0", value=b"v0", headers=(("h", b"1"), ("h", None), ("", b""))),
        row(offset=1, time_ms=T0 + 5, key=None, value=b"v1"),
        row(offset=4, time_ms=T0 - 3 * DAY_MS, key=b"", value=None),
        row(offset=5, time_ms=T0 + 7, key=b"k0", value=b""),
        row(offset=6, time_ms=-1, key=b"\xff\x00", value=b"\x00" * 100),
    ]
    plain = [
        row(partition=2, offset=at, time_ms=T0 + at * 2, key=b"k%d" % (at % 7), value=b"v%d" % at)
        for at in range(300)
    ]
    return odd + plain


def run(broker: tailrace.Broker, lake: Path, **fields: Any) -> Replayed:
    observe = fields.pop("observe", ignore)
    stop = fields.pop("stop", None)
    conf = fields.pop("conf", {})
    config = ReplayConfig(
        bootstrap=broker.bootstrap_servers, lake=str(lake), topic=fields.pop("topic", "orders"), **fields
    )
    spark: Any = SimpleNamespace(conf=conf)
    return replay(config, spark=spark, observe=observe, stop=stop)


def there(broker: tailrace.Broker, topic: str = "orders-replay") -> list[tuple[Any, ...]]:
    return [
        (each.partition, each.timestamp, each.key, each.value, each.headers) for each in broker.read(topic)
    ]


def expected(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(each.partition, each.time_ms, each.key, each.value, each.headers) for each in rows]


# ---- equality


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_replay_is_equal_record_by_record(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row], format: str
) -> None:
    lake = archive_rows(rows, format=format)
    done = run(broker, lake)
    assert there(broker) == expected(rows)
    assert [(part.partition, part.rows, part.skipped, part.end) for part in done.partitions] == [
        (0, 5, 0, 5),
        (2, 300, 0, 300),
    ]
    assert (done.to_topic, done.rows, done.skipped, done.is_complete) == ("orders-replay", 305, 0, True)


def test_the_target_has_as_many_partitions_as_the_original(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    run(broker, archive_rows(rows), to_topic="again")
    assert {broker.produce("again", b"x", partition=at).offset for at in range(3)} == {5, 0, 300}
    with pytest.raises(TailraceError):
        broker.produce("again", b"x", partition=3)


def test_a_repeated_run_adds_nothing(broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]) -> None:
    lake = archive_rows(rows)
    run(broker, lake)
    again = run(broker, lake)
    assert there(broker) == expected(rows)
    assert (again.rows, again.skipped, again.is_complete) == (0, 305, True)


def test_a_lake_that_has_grown_continues_the_replay(
    broker: tailrace.Broker, archive_rows: Archive, row: type[Row]
) -> None:
    first = [row(offset=at, time_ms=T0 + at) for at in range(20)]
    more = [row(offset=at, time_ms=T0 + at) for at in range(20, 50)]
    lake = archive_rows(first)
    run(broker, lake)
    archive_rows(more)
    assert run(broker, lake).rows == 30
    assert there(broker) == expected(first + more)


@pytest.mark.parametrize("fields", [{}, {"partitions": 4}, {"speed": "1000000x"}, {"key": "k3"}])
def test_a_run_killed_again_and_again_ends_with_the_same_records(
    broker: tailrace.Broker,
    archive_rows: Archive,
    rows: list[Row],
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
) -> None:
    """Killed after every few batches of rows, each time after some of them have arrived."""
    lake = archive_rows(rows)
    run(broker, lake, to_topic="whole", **fields)
    monkeypatch.setattr(replay_task, "SCAN_ROWS", 16)
    send, kills = BatchProducer.send, 0

    def dying(limit: int) -> Callable[..., None]:
        sends = itertools.count()

        def send_some(self: BatchProducer, *args: Any) -> None:
            if next(sends) == limit:
                self.flush()
                raise Killed
            send(self, *args)

        return send_some

    for limit in itertools.count(1):
        monkeypatch.setattr(BatchProducer, "send", dying(limit))
        try:
            run(broker, lake, to_topic="pieces", **fields)
            break
        except Killed:
            kills += 1
    assert kills > 1
    assert there(broker, "pieces") == there(broker, "whole")
    assert run(broker, lake, to_topic="pieces", **fields).rows == 0


def test_slices_that_end_early_go_on_without_a_gap(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "SLICE_S", 0.0)
    monkeypatch.setattr(replay_task, "SCAN_ROWS", 64)
    told: list[Progress] = []
    run(broker, archive_rows(rows), observe=told.append)
    assert there(broker) == expected(rows)
    assert told[-1].batch > 3
    assert (told[-1].rows, told[-1].lag) == (305, 0)
    assert told[-1].offsets == {"orders-replay": {0: 5, 2: 300}}


def test_a_stop_ends_a_run_after_its_slice(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "SLICE_S", 0.0)
    monkeypatch.setattr(replay_task, "SCAN_ROWS", 64)
    stop = threading.Event()
    lake = archive_rows(rows)
    done = run(broker, lake, stop=stop, observe=lambda _progress: stop.set())
    assert not done.is_complete
    assert 0 < done.rows < 305
    assert run(broker, lake).rows == 305 - done.rows
    assert there(broker) == expected(rows)


# ---- selections


def test_times_select_from_since_up_to_but_without_until(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    run(broker, archive_rows(rows), since="2023-11-14T22:13:20", until="2023-11-14T23:13:20.010+01:00")
    assert there(broker) == expected([each for each in rows if T0 <= each.time_ms < T0 + 10])


def test_offsets_select_within_each_partition(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    run(broker, archive_rows(rows), since_offset=4, until_offset=6)
    assert there(broker) == expected([each for each in rows if 4 <= each.offset < 6])


def test_a_key_selects_its_records(broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]) -> None:
    run(broker, archive_rows(rows), key="k0")
    assert there(broker) == expected([each for each in rows if each.key == b"k0"])


def test_the_empty_key_is_a_key_and_null_is_none(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    run(broker, archive_rows(rows), key="")
    assert there(broker) == expected([each for each in rows if each.key == b""])


def test_a_selection_without_rows_makes_an_empty_topic(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    done = run(broker, archive_rows(rows), since="2030-01-01")
    assert (done.rows, done.is_complete, there(broker)) == (0, True, [])


# ---- by key into other partitions


def test_a_number_of_partitions_spreads_by_key_as_clients_do(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    run(broker, archive_rows(rows), partitions=4)
    broker.create_topic("by-client", partitions=4)
    found = there(broker)
    for partition, _, key, _, _ in found:
        if key is not None:
            assert broker.produce("by-client", b"", key=key).partition == partition
    assert sorted(map(repr, (each[1:] for each in found))) == sorted(
        map(repr, (each[1:] for each in expected(rows)))
    )


def test_within_a_partition_records_are_in_time_order_unless_they_were_late(
    broker: tailrace.Broker, archive_rows: Archive, row: type[Row]
) -> None:
    left = [row(partition=0, offset=at, time_ms=T0 + 10 * at, key=b"a", value=b"l%d" % at) for at in range(5)]
    right = [
        row(partition=1, offset=at, time_ms=T0 + 5 + 10 * at, key=b"a", value=b"r%d" % at) for at in range(5)
    ]
    run(broker, archive_rows(left + right), partitions=1)
    assert [each[3] for each in there(broker)] == [
        text for at in range(5) for text in (b"l%d" % at, b"r%d" % at)
    ]


# ---- in time


def test_records_leave_at_their_distances_divided_by_the_speed(
    broker: tailrace.Broker, archive_rows: Archive, row: type[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a clock that only waiting moves."""
    clock, left = [1000.0], []
    send = BatchProducer.send

    def note(self: BatchProducer, topic: str, partition: int, rows: Any) -> None:
        left.extend([(round(clock[0] - 1000.0, 3), value) for value in rows.column("value").to_pylist()])
        send(self, topic, partition, rows)

    def wait(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(BatchProducer, "send", note)
    made = replay_task.Replaying
    monkeypatch.setattr(
        replay_task, "Replaying", lambda share, **parts: made(share, **parts, now=lambda: clock[0], wait=wait)
    )
    rows = [
        row(partition=0, offset=0, time_ms=T0, value=b"a"),
        row(partition=0, offset=1, time_ms=T0 + 60_000, value=b"c"),
        row(partition=0, offset=2, time_ms=T0 + 1_000, value=b"late"),
        row(partition=1, offset=0, time_ms=T0 + 30_000, value=b"b"),
        row(partition=1, offset=1, time_ms=T0 + 90_000, value=b"d"),
    ]
    run(broker, archive_rows(rows), speed="3x")
    assert left == [(0.0, b"a"), (10.0, b"b"), (20.0, b"c"), (20.0, b"late"), (30.0, b"d")]


# ---- what is refused


def test_foreign_records_are_refused_and_left_alone(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    broker.create_topic("taken", partitions=3, configs=dict(KEEP_ALL))
    broker.produce("taken", b"mine", partition=2)
    with pytest.raises(TailraceError, match=r"topic taken has other records than this replay.*--to-topic"):
        run(broker, archive_rows(rows), to_topic="taken")
    assert [each.value for each in broker.read("taken", partition=2)] == [b"mine"]


@pytest.mark.parametrize("change", ["key", "value", "timestamp", "headers"])
def test_a_last_record_that_differs_in_anything_is_foreign(
    broker: tailrace.Broker, archive_rows: Archive, row: type[Row], change: str
) -> None:
    lake = archive_rows([row(offset=at, time_ms=T0, key=b"k", headers=(("h", b"1"),)) for at in range(3)])
    broker.create_topic("taken", configs=dict(KEEP_ALL))
    same: dict[str, Any] = {"value": b"v", "key": b"k", "headers": [("h", b"1")], "timestamp": T0}
    other = {"key": b"K", "value": None, "timestamp": T0 + 1, "headers": [("h", None)]}
    broker.produce("taken", **{**same, change: other[change]})
    with pytest.raises(TailraceError, match="other records"):
        run(broker, lake, to_topic="taken")
    broker.create_topic("good", configs=dict(KEEP_ALL))
    broker.produce("good", **same)
    assert run(broker, lake, to_topic="good").rows == 2


def test_more_records_than_the_replay_has_are_foreign(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    lake = archive_rows(rows)
    run(broker, lake)
    broker.produce("orders-replay", b"one more", partition=2)
    with pytest.raises(TailraceError, match="has 301, this replay only 300"):
        run(broker, lake)


def test_records_in_a_partition_that_gets_none_are_foreign(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    lake = archive_rows(rows)
    run(broker, lake)
    broker.produce("orders-replay", b"x", partition=1)
    with pytest.raises(TailraceError, match="none belong to partition 1"):
        run(broker, lake)


def test_somebody_who_writes_meanwhile_is_noticed(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = BatchProducer.send

    def disturbed(self: BatchProducer, topic: str, partition: int, rows: Any) -> None:
        broker.produce(topic, b"me too", partition=partition)
        send(self, topic, partition, rows)

    monkeypatch.setattr(BatchProducer, "send", disturbed)
    with pytest.raises(TailraceError, match=r"somebody else writes.*delete orders-replay"):
        run(broker, archive_rows(rows))


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"cleanup.policy": "compact"}, "is compacted"),
        ({"message.timestamp.type": "LogAppendTime"}, "timestamps of its own"),
        ({"retention.ms": "1000"}, "older than 1000 ms"),
    ],
)
def test_a_topic_that_would_not_keep_the_records_is_refused(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row], configs: dict[str, str], why: str
) -> None:
    broker.create_topic("bad", partitions=3, configs=configs)
    with pytest.raises(ConfigError, match=f"topic bad cannot be the target.*{why}"):
        run(broker, archive_rows(rows), to_topic="bad")


def test_a_topic_with_too_few_partitions_is_refused(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    broker.create_topic("small", partitions=2, configs=dict(KEEP_ALL))
    lake = archive_rows(rows)
    with pytest.raises(ConfigError, match="has 2 partitions, and 3 are needed"):
        run(broker, lake, to_topic="small")
    with pytest.raises(ConfigError, match="has 2 partitions, and 1 are needed"):
        run(broker, lake, to_topic="small", partitions=1)


def test_a_topic_that_is_not_in_the_lake_is_answered_with_what_is(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    lake = archive_rows(rows)
    with pytest.raises(ConfigError, match=r"topic order is not in the lake .*did you mean orders?"):
        run(broker, lake, topic="order")
    with pytest.raises(ConfigError, match="there is orders"):
        run(broker, lake, topic="zzz")


def test_a_folder_that_is_no_lake_is_refused(broker: tailrace.Broker, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no lake"):
        run(broker, tmp_path / "nothing")


def test_a_spark_that_runs_a_task_twice_at_once_is_refused(
    broker: tailrace.Broker, archive_rows: Archive, rows: list[Row]
) -> None:
    with pytest.raises(ConfigError, match=r"both would write to the topic. Set spark\.speculation=false"):
        run(broker, archive_rows(rows), conf={"spark.speculation": "true"})
    assert run(broker, archive_rows([], name="lake"), conf={"spark.speculation": "false"}).is_complete
