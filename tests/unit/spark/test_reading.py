"""Ranges read from a real broker in this process: order, bounds, damage, loss and the broker's restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.client import admin
from tailrace.client.kafka import KafkaClient
from tailrace.client.transfer import Fetched
from tailrace.model import ConfigError, TopicPartition
from tailrace.records import BatchError, build_batch
from tailrace.spark import reading
from tailrace.spark.codec import KAFKA_SCHEMA, Piece
from tailrace.spark.data_loss import DataLoss
from tailrace.spark.link import BrokerLink
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.reading import read_range
from tailrace.testing.port import free_port

TP = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def link(broker: tailrace.Broker) -> Iterator[BrokerLink]:
    made = BrokerLink(broker.bootstrap_servers)
    yield made
    made.close()


def fill(link: BrokerLink, count: int, *, per_batch: int = 10) -> None:
    now_ms = time.time_ns() // 1_000_000  # what is older than retention.ms goes away by itself

    async def produce(client: KafkaClient) -> None:
        for first in range(0, count, per_batch):
            values = [b"v%d" % i for i in range(first, min(first + per_batch, count))]
            await client.produce("orders", 0, build_batch([(now_ms, b"k", value, ()) for value in values]))

    link.run(produce)


def delete_before(link: BrokerLink, offset: int) -> None:
    link.run(lambda client: admin.delete_records(client, {TP: offset}))


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="orders", partition=0, start=start, end=end)


def offsets(pieces: list[Piece]) -> list[int]:
    return [offset for piece in pieces for offset in piece.rows.column("offset").to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 17), (99, 100), (40, 40)])
def test_exactly_the_range_is_read_in_order(link: BrokerLink, start: int, end: int) -> None:
    fill(link, 100)
    pieces = list(read_range(link, span(start, end), headers=True))
    assert offsets(pieces) == list(range(start, end))
    assert not pieces or pieces[-1].next_offset == end


def test_many_small_fetches_give_the_same_rows_as_one(link: BrokerLink) -> None:
    fill(link, 300)
    pieces = list(read_range(link, span(3, 297), headers=False, fetch_bytes=1))
    assert len(pieces) > 20
    assert offsets(pieces) == list(range(3, 297))


def test_only_the_columns_asked_for_are_made(link: BrokerLink) -> None:
    fill(link, 3)
    import pyarrow as pa

    schema = pa.schema([KAFKA_SCHEMA.field("offset"), KAFKA_SCHEMA.field("value")])
    (piece,) = read_range(link, span(0, 3), headers=False, schema=schema)
    assert piece.rows.schema == schema
    assert piece.rows.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


def test_a_column_that_no_record_has_is_refused_before_anything_is_fetched(link: BrokerLink) -> None:
    import pyarrow as pa

    with pytest.raises(ConfigError, match="no column 'colour'"):
        read_range(link, span(0, 3), headers=False, schema=pa.schema([("colour", pa.string())]))


def test_a_reader_that_stops_early_leaves_nothing_under_way(link: BrokerLink) -> None:
    fill(link, 100)
    pieces = read_range(link, span(0, 100), headers=False, fetch_bytes=1)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert offsets(list(read_range(link, span(0, 100), headers=False))) == list(range(100))


def test_records_deleted_before_the_range_are_a_loss_that_names_offsets_and_option(link: BrokerLink) -> None:
    fill(link, 100)
    delete_before(link, 30)
    with pytest.raises(DataLoss, match=r"orders-0 offsets 5 to 29 .* begins at 30 .*failOnDataLoss=false"):
        list(read_range(link, span(5, 60), headers=False))


def test_records_deleted_before_the_range_can_be_skipped(link: BrokerLink) -> None:
    fill(link, 100)
    delete_before(link, 30)
    pieces = list(read_range(link, span(5, 60), headers=False, fail_on_data_loss=False))
    assert offsets(pieces) == list(range(30, 60))
    assert pieces[0].next_offset == 30


def test_a_range_that_was_deleted_altogether_ends_at_its_end(link: BrokerLink) -> None:
    fill(link, 100)
    delete_before(link, 30)
    pieces = list(read_range(link, span(5, 20), headers=False, fail_on_data_loss=False))
    assert [(piece.rows.num_rows, piece.next_offset) for piece in pieces] == [(0, 20)]


@pytest.mark.parametrize(("start", "lost"), [(90, 100), (100, 100), (120, 120)])
def test_a_range_beyond_the_end_of_the_log_is_a_loss(
    link: BrokerLink, monkeypatch: pytest.MonkeyPatch, start: int, lost: int
) -> None:
    monkeypatch.setattr(reading, "END_PATIENCE_S", 0.2)
    fill(link, 100)
    with pytest.raises(DataLoss, match=rf"orders-0 offsets {lost} to 149 .*ends at 100"):
        list(read_range(link, span(start, 150), headers=False))
    pieces = list(read_range(link, span(start, 150), headers=False, fail_on_data_loss=False))
    assert offsets(pieces) == list(range(start, 100))
    assert pieces[-1].next_offset == 150


def test_records_that_come_late_are_waited_for(link: BrokerLink) -> None:
    fill(link, 10)
    pieces = read_range(link, span(0, 20), headers=False)
    assert next(pieces).next_offset == 10
    fill(link, 10)
    assert offsets(list(pieces)) == list(range(10, 20))


def test_a_topic_that_is_gone_is_a_loss(link: BrokerLink) -> None:
    fill(link, 10)
    link.run(lambda client: admin.delete_topic(client, "orders"))
    with pytest.raises(DataLoss, match=r"orders-0 offsets 0 to 9 .*does not exist any more"):
        list(read_range(link, span(0, 10), headers=False))
    pieces = list(read_range(link, span(0, 10), headers=False, fail_on_data_loss=False))
    assert [piece.next_offset for piece in pieces] == [10]


def answer_with(monkeypatch: pytest.MonkeyPatch, log: list[bytes], bases: list[int]) -> None:
    """Fetches give the batches of `log` from the one that holds the offset on, as a broker would."""

    async def fetch(_reading: object, _client: object, position: int, bytes_max: int) -> Fetched:
        first = max((i for i, base in enumerate(bases) if base <= position), default=0)
        return Fetched(
            0, 40, 40, 0, [], memoryview(b"".join(log[first : first + (2 if bytes_max > 1 else 1)]))
        )

    monkeypatch.setattr(reading._Reading, "_fetch", fetch)


def batches_of_ten() -> list[bytes]:
    return [
        bytes(build_batch([(1000, None, b"v%d" % (base + i), ()) for i in range(10)], base_offset=base))
        for base in range(0, 40, 10)
    ]


def flipped(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 0xFF]) + batch[at + 1 :]


def test_a_broken_batch_is_an_error_that_names_it(link: BrokerLink, monkeypatch: pytest.MonkeyPatch) -> None:
    log = batches_of_ten()
    log[2] = flipped(log[2], 80)
    answer_with(monkeypatch, log, [0, 10, 20, 30])
    with pytest.raises(BatchError, match="orders-0 at offset 20"):
        list(read_range(link, span(0, 40), headers=False))


@pytest.mark.parametrize("at", [80, 24], ids=["its records", "its claim of offsets"])
def test_a_broken_batch_can_be_set_aside_with_its_bytes(
    link: BrokerLink, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    log = batches_of_ten()
    log[1] = flipped(log[1], at)
    answer_with(monkeypatch, log, [0, 10, 20, 30])
    pieces = list(read_range(link, span(0, 40), headers=False, keeps_bad=True))
    assert offsets(pieces) == [*range(10), *range(20, 40)]
    assert [bytes(span.raw) for piece in pieces for span in piece.bad] == [log[1]]
    assert pieces[-1].next_offset == 40


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_batch_whose_length_cannot_be_believed_is_passed_over(
    link: BrokerLink, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    log = batches_of_ten()
    log[broken] = flipped(log[broken], 8)
    answer_with(monkeypatch, log, [0, 10, 20, 30])
    pieces = list(read_range(link, span(0, 40), headers=False, keeps_bad=True))
    bad = [each for piece in pieces for each in piece.bad]
    lost = range(10 * broken, 10 * broken + 10)
    assert offsets(pieces) == [each for each in range(40) if each not in lost]
    assert [(each.first_offset, each.next_offset) for each in bad] == [(lost.start, lost.stop)]


def test_no_small_batch_behind_a_bad_one_is_passed_over_with_it(
    link: BrokerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = batches_of_ten()[:2]
    log[1] = flipped(log[1], 8)
    singles = [bytes(build_batch([(1000, None, b"x", ())], base_offset=base)) for base in range(20, 40)]
    answer_with(monkeypatch, [*log, *singles], [0, 10, *range(20, 40)])
    pieces = list(read_range(link, span(0, 40), headers=False, keeps_bad=True))
    assert offsets(pieces) == [*range(10), *range(20, 40)]


def test_a_bad_batch_at_the_end_of_the_range_ends_with_it(
    link: BrokerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = batches_of_ten()
    log[3] = flipped(log[3], 80)
    answer_with(monkeypatch, log, [0, 10, 20, 30])
    pieces = list(read_range(link, span(0, 37), headers=False, keeps_bad=True))
    assert offsets(pieces) == list(range(30))
    assert pieces[-1].next_offset == 37


def test_reading_goes_on_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    port = free_port()
    with tailrace.Broker(data_dir=tmp_path, port=port) as first:
        first.create_topic("orders")
        link = BrokerLink(first.bootstrap_servers)
        fill(link, 200)
        pieces = read_range(link, span(0, 200), headers=False, fetch_bytes=1)
        found = offsets([next(pieces)])
    with tailrace.Broker(data_dir=tmp_path, port=port):
        found += offsets(list(pieces))
        link.close()
    assert found == list(range(200))
