"""Topics into a lake, whole, with a real broker and a stand-in for Spark that runs tasks in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.kill_archive import LocalSpark, as_session
from tests.unit.spark.pipelines.archive_rig import (
    DAY_MS,
    NOON_MS,
    Filler,
    lake_rows,
    some_records,
    table_rows,
    topic_rows,
)

import tailrace
from tailrace.client.admin import add_partitions, delete_records, delete_topic
from tailrace.client.error import UnknownTopic
from tailrace.model import ConfigError, TopicPartition
from tailrace.records import Compression, build_batch, crc32c
from tailrace.spark.lake import Advance, Change, Conflict, open_table
from tailrace.spark.lake.missing import GONE
from tailrace.spark.link import close_links, link_to
from tailrace.spark.pipelines.archive import ArchiveConfig, Archived, archive
from tailrace.spark.pipelines.archive_plan import OtherTopic
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed
from tailrace.testing.port import free_port


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running
        close_links()


@pytest.fixture
def filler(broker: tailrace.Broker) -> Iterator[Filler]:
    filler = Filler(broker.bootstrap_servers)
    yield filler
    filler.close()


@pytest.fixture
def config(broker: tailrace.Broker, tmp_path: Path) -> ArchiveConfig:
    return ArchiveConfig(
        bootstrap=broker.bootstrap_servers, topic=("orders",), to=str(tmp_path / "lake"), once=True
    )


def run(config: ArchiveConfig, spark: LocalSpark | None = None) -> Archived:
    return archive(config, spark=as_session(spark or LocalSpark()))


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_lake_has_every_record_of_its_topics(
    format: str, broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("17", 1)
    filler.fill("orders", 0, some_records(500, step_ms=DAY_MS // 100), compression=Compression.ZSTD)
    filler.fill("orders", 1, some_records(300, at_ms=NOON_MS + DAY_MS), compression=Compression.LZ4)
    filler.fill("17", 0, some_records(10))
    done = run(replace(config, topic=("orders", "17"), format=format))
    assert done.offsets == {"orders": {0: 500, 1: 300}, "17": {0: 10}}
    assert (done.rows, done.batches, done.format, done.bad) == (810, 1, format, ())
    expected = topic_rows(broker, ["orders", "17"])
    assert len(expected) == 810
    assert table_rows(Path(config.to)) == expected
    if format != "iceberg":  # its files lie wherever it likes
        assert lake_rows(Path(config.to)) == expected


def test_a_second_run_goes_on_where_the_lake_ends(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(50))
    assert run(config).rows == 50
    assert run(config).rows == 0
    filler.fill("orders", 0, some_records(30))
    again = run(config)
    assert (again.rows, again.offsets) == (30, {"orders": {0: 80}})
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])


def test_a_backlog_larger_than_a_batch_takes_several(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 2)
    filler.fill("orders", 0, some_records(900))
    filler.fill("orders", 1, some_records(100))
    seen: list[Progress] = []
    done = archive(replace(config, batch_rows=250), spark=as_session(LocalSpark()), observe=seen.append)
    assert (done.rows, done.batches) == (1000, 4)
    assert [each.lag for each in seen] == [1000, 750, 500, 250, 0]
    assert [each.rows for each in seen] == [0, 250, 500, 750, 1000]
    assert seen[1].offsets == {"orders": {0: 225, 1: 25}}
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])


def test_once_ends_at_the_ends_of_its_start(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(20))
    spark = LocalSpark(interfere=lambda _task: filler.fill("orders", 0, some_records(5)))
    assert run(replace(config, batch_rows=10), spark).offsets == {"orders": {0: 20}}


def test_an_unknown_topic_is_an_error_and_makes_no_lake(
    broker: tailrace.Broker, config: ArchiveConfig
) -> None:
    with pytest.raises(UnknownTopic, match="topic orders does not exist"):
        run(config)
    assert not Path(config.to).exists()


def test_an_empty_topic_is_archived_at_once(broker: tailrace.Broker, config: ArchiveConfig) -> None:
    broker.create_topic("orders", 2)
    done = run(config)
    assert (done.rows, done.files, done.offsets) == (0, 0, {"orders": {0: 0, 1: 0}})


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("topic", (), "topic names nothing"),
        ("to", "", "to is empty"),
        ("to", "s3://bucket/lake", "s3://"),
        ("format", "orc", "format is 'orc'. Choose one of parquet, delta, iceberg"),
        ("compression", "rar", "compression is 'rar'"),
        ("batch_rows", 0, "batch_rows is 0. Give at least 1"),
        ("file_bytes", 10, "file_bytes is 10"),
        ("interval_s", float("nan"), "interval_s is nan"),
        ("starting", "yesterday-ish", "starting is earliest, latest or a time"),
    ],
)
def test_a_wrong_setting_is_named(
    field: str, value: object, told: str, broker: tailrace.Broker, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    with pytest.raises(ConfigError, match=told):
        run(replace(config, **{field: value}))  # type: ignore[arg-type]


# ---- beginnings


def test_latest_begins_at_the_end_and_stays_with_it(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(20))
    latest = replace(config, starting="latest")
    assert run(latest).rows == 0
    filler.fill("orders", 0, some_records(5))
    assert run(latest).rows == 5  # not from the end again
    assert [row.offset for row in lake_rows(Path(config.to))] == [20, 21, 22, 23, 24]


@pytest.mark.parametrize(
    ("starting", "offsets"), [("2026-11-16T12:00:00.007", [7, 8, 9]), ("2036-01-01T00:00+02:00", [])]
)
def test_a_time_begins_at_its_first_record(
    starting: str, offsets: list[int], broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    run(replace(config, starting=starting))
    assert [row.offset for row in lake_rows(Path(config.to))] == offsets


# ---- what is not there


def test_what_retention_took_is_told_and_the_rest_archived(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    run(config)
    filler.fill("orders", 0, some_records(20))
    link_to(config.bootstrap).run(lambda client: delete_records(client, {TopicPartition("orders", 0): 18}))
    seen: list[Progress] = []
    done = archive(config, spark=as_session(LocalSpark()), observe=seen.append)
    (gap,) = done.bad
    assert (gap.first_offset, gap.last_offset, gap.reason) == (10, 17, GONE)
    assert "orders-0 10 to 17 (not in the topic any more)" in seen[-1].note
    assert [row.offset for row in lake_rows(Path(config.to))] == [*range(10), *range(18, 30)]
    assert list(open_table(config.to).snapshot().bad) == [gap]


def test_records_that_go_while_they_are_read_are_planned_again(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(20), batch=10)
    run(replace(config, starting="latest"))
    filler.fill("orders", 0, some_records(20), batch=10)

    def trim(_task: int) -> None:
        link_to(config.bootstrap).run(
            lambda client: delete_records(client, {TopicPartition("orders", 0): 30})
        )

    spark = LocalSpark(interfere=trim)
    done = run(config, spark)
    assert spark.jobs == 2
    assert [(bad.first_offset, bad.last_offset, bad.reason) for bad in done.bad] == [(20, 29, GONE)]
    assert [row.offset for row in lake_rows(Path(config.to))] == [*range(30, 40)]


@pytest.mark.parametrize("count", [3, 30], ids=["shorter than before", "longer than before"])
def test_a_topic_made_anew_is_refused_with_the_fix(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig, count: int
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    run(config)
    link_to(config.bootstrap).run(lambda client: delete_topic(client, "orders"))
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(count))
    with pytest.raises(OtherTopic, match=r"another topic that was named orders\. .*another lake \(--to\)"):
        run(config)
    assert len(lake_rows(Path(config.to))) == 10


def test_records_of_a_topic_made_anew_while_it_is_read_do_not_get_into_the_lake(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))

    def make_anew(_task: int) -> None:
        link_to(config.bootstrap).run(lambda client: delete_topic(client, "orders"))
        broker.create_topic("orders", 1)
        filler.fill("orders", 0, some_records(10, at_ms=NOON_MS + DAY_MS))

    with pytest.raises(OtherTopic, match=r"topic orders was deleted and created again during this run"):
        run(config, LocalSpark(interfere=make_anew))
    assert lake_rows(Path(config.to)) == []
    assert run(config).rows == 10


def test_a_topic_made_anew_is_not_begun_where_the_old_one_was(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    link = link_to(config.bootstrap)
    link.run(lambda client: delete_records(client, {TopicPartition("orders", 0): 10}))

    def make_anew(_progress: Progress) -> None:
        link.run(lambda client: delete_topic(client, "orders"))
        broker.create_topic("orders", 1)
        filler.fill("orders", 0, some_records(30))

    with pytest.raises(OtherTopic, match=r"created again during this run.* Run it again"):
        archive(config, spark=as_session(LocalSpark()), observe=make_anew)
    assert run(config).rows == 30


def test_records_that_were_read_before_their_topic_was_deleted_are_kept(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    expected = topic_rows(broker, ["orders"])

    class DeletesAfter(LocalSpark):
        def attempt(self, task: int) -> list[pa.RecordBatch]:
            found = super().attempt(task)
            link_to(config.bootstrap).run(lambda client: delete_topic(client, "orders"))
            return found

    with pytest.raises(UnknownTopic, match="topic orders does not exist"):
        run(config, DeletesAfter())
    assert lake_rows(Path(config.to)) == expected


def test_a_broken_batch_is_set_aside_with_its_reason_and_the_others_are_archived(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))
    broken = broken_batch()
    assert filler.send("orders", 0, broken) == 5
    filler.fill("orders", 0, some_records(5))
    done = run(config)
    assert (done.rows, done.offsets) == (10, {"orders": {0: 13}})
    (bad,) = done.bad
    assert (bad.first_offset, bad.last_offset) == (5, 7) and bad.reason and bad.saved
    saved = Path(config.to, bad.saved).read_bytes()
    assert saved[16:] == bytes(broken)[16:]  # before that are the offset and the leader's epoch
    assert [row.offset for row in lake_rows(Path(config.to))] == [*range(5), *range(8, 13)]
    assert run(config).bad == ()


def broken_batch() -> bytearray:
    """Three records of which the first claims a length of -1, under a checksum that is true."""
    broken = build_batch([(NOON_MS, b"k", b"v" * 20, ())] * 3)
    broken[61] = 0x01
    broken[17:21] = crc32c(memoryview(broken)[21:]).to_bytes(4, "big")
    return broken


def test_a_broken_batch_that_lies_across_two_batches_is_told_once(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))
    filler.send("orders", 0, broken_batch())
    filler.fill("orders", 0, some_records(5))
    done = run(replace(config, batch_rows=6))
    assert (done.batches, len(done.bad)) == (3, 1)
    assert len(open_table(config.to).snapshot().bad) == 1
    assert [row.offset for row in lake_rows(Path(config.to))] == [*range(5), *range(8, 13)]


# ---- failures


def test_only_what_the_winning_attempt_wrote_is_in_the_lake(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(50))
    spark = LocalSpark()
    spark.interfere = lambda task: void(spark.attempt(task))  # every task runs twice, as with speculation
    run(config, spark)
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])


def void(_value: object) -> None:
    """Nothing."""


def test_a_job_that_spark_gave_up_is_run_again_and_leaves_nothing_behind(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(50))
    spark = LocalSpark()

    def lose_worker(task: int) -> None:
        if spark.jobs == 1:
            spark.attempt(task)
            raise RuntimeError("Python worker exited unexpectedly (crashed)")

    spark.interfere = lose_worker
    seen: list[Progress] = []
    archive(config, spark=as_session(spark), observe=seen.append)
    assert "trying again" in seen[1].note and "crashed" in seen[1].note
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])
    assert not list(Path(config.to, "_tailrace", "staging").glob("*/*"))


def test_a_package_that_workers_lack_is_an_error_at_once(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))

    def fail(_task: int) -> None:
        raise RuntimeError("ModuleNotFoundError: No module named 'pyarrow'")

    spark = LocalSpark(interfere=fail)
    with pytest.raises(SparkFailed, match="pyarrow"):
        run(config, spark)
    assert spark.jobs == 1


def test_a_spark_that_always_fails_is_an_error_in_the_end(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))

    def fail(_task: int) -> None:
        raise RuntimeError("no")

    spark = LocalSpark(interfere=fail)
    with pytest.raises(SparkFailed, match="no"):
        run(config, spark)
    assert spark.jobs == 4
    assert lake_rows(Path(config.to)) == []


def test_an_error_that_no_repetition_mends_is_raised_at_once(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))
    spark = LocalSpark()

    def block_staging(_task: int) -> None:
        for folder in Path(config.to, "_tailrace", "staging").iterdir():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            folder.write_text("a file where a folder should be")

    spark.interfere = block_staging
    with pytest.raises(TaskFailed, match="Not a directory"):
        run(config, spark)
    assert spark.jobs == 1


def test_two_archives_of_one_topic_add_every_record_once(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(60))
    other = LocalSpark()
    spark = LocalSpark()
    # The second one runs to its end while the first has read its batch and not committed it.
    spark.interfere = lambda _task: void(run(config, other)) if not other.jobs else None
    seen: list[Progress] = []
    done = archive(replace(config, batch_rows=40), spark=as_session(spark), observe=seen.append)
    assert "another archive writes this lake" in seen[1].note
    assert (done.rows, done.offsets) == (0, {"orders": {0: 60}})
    assert lake_rows(Path(config.to)) == topic_rows(broker, ["orders"])


def test_a_lake_that_others_always_move_on_is_a_conflict_in_the_end(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(60))
    spark = LocalSpark()

    def overtake(_task: int) -> None:
        start = spark.jobs - 1
        advance = Advance(topic="orders", partition=0, start=start, end=start + 1)
        open_table(config.to).commit(Change(operation="other", advances=[advance]))

    spark.interfere = overtake
    with pytest.raises(Conflict, match="Another archive writes the same topic"):
        run(config, spark)
    assert spark.jobs == 20
    assert lake_rows(Path(config.to)) == []


# ---- continuous


class Watched:
    """A run in a thread of its own, with a condition that its progress wakes."""

    def __init__(self, config: ArchiveConfig) -> None:
        self.seen: list[Progress] = []
        self.stop = threading.Event()
        self.news = threading.Condition()
        self.done: Archived | None = None
        self._thread = threading.Thread(target=self._run, args=(config,))
        self._thread.start()

    def _run(self, config: ArchiveConfig) -> None:
        self.done = archive(config, spark=as_session(LocalSpark()), observe=self._observe, stop=self.stop)

    def _observe(self, progress: Progress) -> None:
        with self.news:
            self.seen.append(progress)
            self.news.notify_all()

    def wait_rows(self, rows: int) -> None:
        self.wait_for(lambda progress: progress.rows >= rows)

    def wait_for(self, is_there: Callable[[Progress], bool]) -> None:
        with self.news:
            assert self.news.wait_for(lambda: bool(self.seen) and is_there(self.seen[-1]), timeout=60)

    def end(self) -> Archived:
        self.stop.set()
        self._thread.join(60)
        assert self.done is not None
        return self.done


def test_a_continuous_run_follows_the_topic_and_finds_new_partitions(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    watched = Watched(replace(config, once=False, interval_s=0.0, starting="latest"))
    try:
        watched.wait_rows(0)  # it has begun
        link_to(config.bootstrap).run(lambda client: add_partitions(client, "orders", 2))
        filler.fill("orders", 1, some_records(7))
        watched.wait_rows(7)
        filler.fill("orders", 0, some_records(5))
        watched.wait_rows(12)
    finally:
        done = watched.end()
    assert (done.stopped, done.rows, done.offsets) == (True, 12, {"orders": {0: 15, 1: 7}})
    assert [row for row in topic_rows(broker, ["orders"]) if row.partition or row.offset >= 10] == lake_rows(
        Path(config.to)
    )


def test_small_batches_wait_for_the_interval_and_full_ones_do_not(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    watched = Watched(replace(config, once=False, interval_s=3600.0, batch_rows=100))
    try:
        watched.wait_rows(10)  # the first does not wait
        filler.fill("orders", 0, some_records(99))
        watched.wait_for(lambda progress: progress.lag == 99)  # it has seen them, and lets them wait
        filler.fill("orders", 0, some_records(1))
        watched.wait_rows(110)
    finally:
        done = watched.end()
    assert (done.batches, done.rows) == (2, 110)


def test_a_run_survives_a_broker_that_restarts(tmp_path: Path) -> None:
    port = free_port()
    running = tailrace.Broker(data_dir=tmp_path / "broker", port=port)
    running.start()
    config = ArchiveConfig(
        bootstrap=running.bootstrap_servers, topic=("orders",), to=str(tmp_path / "lake"), interval_s=0.0
    )
    running.create_topic("orders", 1)
    running.produce("orders", b"before")
    watched = Watched(config)
    try:
        watched.wait_rows(1)
        running.close()
        running = tailrace.Broker(data_dir=tmp_path / "broker", port=port)
        running.start()
        running.produce("orders", b"after")
        watched.wait_rows(2)
    finally:
        watched.end()
        close_links()
        expected = topic_rows(running, ["orders"])
        running.close()
    assert lake_rows(tmp_path / "lake") == expected
