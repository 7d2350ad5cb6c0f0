"""Records that go before they are archived: who is told, and retention that waits, with a real broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.spark.kill_archive import LocalSpark, as_session
from tests.unit.spark.pipelines.archive_rig import Filler, lake_rows, some_records

import tailrace
from tailrace.client.admin import alter_configs, delete_records, delete_topic
from tailrace.client.error import DataMissing
from tailrace.client.kafka import KafkaClient
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.lake import open_table
from tailrace.spark.lake.change import BadRange
from tailrace.spark.lake.missing import GONE, MissingRange, find_missing, tell_missing
from tailrace.spark.link import close_links, link_to
from tailrace.spark.pipelines.archive import ArchiveConfig, Archived, archive
from tailrace.spark.pipelines.progress import Progress, progress_fields

PLACE = TopicPartition("orders", 0)
DEADLINE_S = 60


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


def run(config: ArchiveConfig, seen: list[Progress] | None = None) -> Archived:
    watched = [] if seen is None else seen
    return archive(config, spark=as_session(LocalSpark()), observe=watched.append)


def delete_before(config: ArchiveConfig, offset: int) -> None:
    link_to(config.bootstrap).run(lambda client: delete_records(client, {PLACE: offset}))


def gone(first: int, last: int) -> MissingRange:
    return MissingRange(topic="orders", partition=0, first_offset=first, last_offset=last)


def make_hole(broker: tailrace.Broker, filler: Filler, config: ArchiveConfig) -> None:
    """Ten records in the lake, then 8 that are gone, then 12."""
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    run(config)
    filler.fill("orders", 0, some_records(20))
    delete_before(config, 18)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_every_later_run_names_what_the_lake_misses(
    format: str,
    broker: tailrace.Broker,
    filler: Filler,
    config: ArchiveConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = replace(config, format=format)
    make_hole(broker, filler, config)
    with caplog.at_level(logging.WARNING):
        assert run(config).missing == (gone(10, 17),)
    assert "deleted before they were archived: orders-0 10 to 17" in caplog.text
    caplog.clear()
    seen: list[Progress] = []
    with caplog.at_level(logging.WARNING):
        again = run(config, seen)
    assert (again.bad, again.missing, again.rows) == ((), (gone(10, 17),), 0)
    assert "missing from the lake: orders-0 10 to 17" in caplog.text
    assert all(each.missing == (gone(10, 17),) for each in seen)
    filler.fill("orders", 0, some_records(5))
    delete_before(config, 32)
    assert run(config).missing == (gone(10, 17), gone(30, 31))


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("before", [0, 7], ids=["a new topic", "a topic whose first records are gone"])
def test_records_lost_before_the_first_batch_are_named(
    before: int, format: str, broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    config = replace(config, format=format)
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(before))
    delete_before(config, before)
    first = run(config)
    assert (first.rows, first.missing, first.offsets) == (0, (), {"orders": {0: before}})
    filler.fill("orders", 0, some_records(5))
    delete_before(config, before + 3)
    second = run(config)
    assert (second.rows, second.missing) == (2, (gone(before, before + 2),))


def test_an_empty_topic_that_was_made_anew_is_archived_into_the_same_lake(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 2)
    run(config)
    link_to(config.bootstrap).run(lambda client: delete_topic(client, "orders"))
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(5))
    assert run(config).rows == 5


def test_a_run_is_about_its_own_topics(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    make_hole(broker, filler, config)
    run(config)
    broker.create_topic("clicks", 1)
    assert run(replace(config, topic=("clicks",))).missing == ()


def test_with_fail_on_data_loss_nothing_is_passed_over(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    strict = replace(config, fail_on_data_loss=True)
    make_hole(broker, filler, strict)
    for _ in range(2):
        with pytest.raises(DataMissing, match=r"orders-0 10 to 17\. .*without --fail-on-data-loss.*\.wait"):
            run(strict)
        assert open_table(config.to).snapshot().ends == {PLACE: 10}
    run(config)
    assert run(strict).missing == (gone(10, 17),)  # it was accepted, and no new range is
    assert [row.offset for row in lake_rows(Path(config.to))] == [*range(10), *range(18, 30)]


def test_ranges_that_touch_are_one_and_damaged_ones_are_none() -> None:
    def bad(first: int, last: int, *, partition: int = 0, reason: str = GONE) -> BadRange:
        return BadRange(
            topic="orders", partition=partition, first_offset=first, last_offset=last, reason=reason
        )

    found = find_missing(
        [bad(20, 29), bad(10, 14), bad(15, 17), bad(3, 4, reason="rotten"), bad(18, 19, partition=1)],
        topics=["orders"],
    )
    assert [str(each) for each in found] == ["orders-0 10 to 17", "orders-0 20 to 29", "orders-1 18 to 19"]
    assert tell_missing(found, shown_max=2) == "orders-0 10 to 17, orders-0 20 to 29 and 1 more ranges"
    assert find_missing([bad(1, 2)], topics=["clicks"]) == ()


def test_a_record_of_a_run_names_some_ranges_and_counts_all() -> None:
    missing = [gone(10 * n, 10 * n + 2) for n in range(1000)]
    progress = Progress(pipeline="archive", batch=0, rows=0, rows_per_s=0.0, lag=0, missing=missing)
    fields = progress_fields(progress)
    assert fields["missing_offsets"] == {"orders": {"0": 3000}}
    assert isinstance(fields["missing"], list)
    assert len(fields["missing"]) == 100
    assert fields["missing"][1] == {"topic": "orders", "partition": 0, "first_offset": 10, "last_offset": 12}


# ---- the group


def committed(config: ArchiveConfig, group: str) -> int:
    async def ask(client: KafkaClient) -> int:
        return (await client.committed(group, [PLACE]))[PLACE].offset

    return link_to(config.bootstrap).run(ask)


def test_a_run_commits_how_far_the_lake_is(
    broker: tailrace.Broker, filler: Filler, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    filler.fill("orders", 0, some_records(10))
    run(config)
    assert committed(config, "tailrace-archive-lake") == 10
    run(replace(config, group="tailrace-archive-b"))  # nothing new to archive, and told all the same
    assert committed(config, "tailrace-archive-b") == 10


def test_a_group_that_retention_would_not_see_is_refused(
    broker: tailrace.Broker, config: ArchiveConfig
) -> None:
    broker.create_topic("orders", 1)
    with pytest.raises(ConfigError, match="begins with tailrace-archive"):
        run(replace(config, group="mine"))


@pytest.mark.parametrize("wait", ["1h", "0"])
@pytest.mark.parametrize("engine", ["memory", "segment"])
def test_retention_waits_for_a_run_that_is_slower(engine: str, wait: str, tmp_path: Path) -> None:
    """One record is archived; retention, which looks 20 times a second, begins when the others are there."""
    configs = {"retention.check.interval.ms": 50}
    data_dir = tmp_path / "data" if engine == "segment" else None
    with tailrace.Broker(data_dir=data_dir, configs=configs) as broker:
        settings = {"segment.ms": "100", "retention.archive.wait": wait}
        broker.create_topic("orders", 1, configs=settings)
        config = ArchiveConfig(
            bootstrap=broker.bootstrap_servers, topic=("orders",), to=str(tmp_path / "lake"), once=True
        )
        broker.produce("orders", b"v")
        run(config)
        for _ in range(49):
            broker.produce("orders", b"v")
        changes = {"retention.ms": "1"}
        link_to(config.bootstrap).run(lambda client: alter_configs(client, "orders", changes=changes))
        if wait == "0":
            wait_start(config, 50)
        else:
            time.sleep(1.0)  # so long nothing may happen
            assert start_of(config) <= 1
        done = run(config)
        assert (done.rows, done.missing) == ((49, ()) if wait != "0" else (0, (gone(1, 49),)))
        wait_start(config, 50)
        close_links()


def start_of(config: ArchiveConfig) -> int:
    from tailrace.client.offsets import EARLIEST

    async def ask(client: KafkaClient) -> int:
        return (await client.list_offsets({PLACE: EARLIEST}))[PLACE].offset

    return link_to(config.bootstrap).run(ask)


def wait_start(config: ArchiveConfig, offset: int) -> None:
    """Retention is by the clock, and gives no sign but the start of the log."""
    ended = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while start_of(config) < offset:
        assert time.monotonic() < deadline, f"the log still starts at {start_of(config)}"
        ended.wait(0.05)
