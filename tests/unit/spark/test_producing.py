"""The producer of Arrow batches: against a real broker, with lost replies and refusals played in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.client import kafka
from tailrace.client.error import ClientClosed, ConnectionLost, TimedOut
from tailrace.client.kafka import KafkaClient
from tailrace.client.transfer import Produced, produce_to
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.records import BytesLike, Compression, read_batch
from tailrace.spark.link import BrokerLink
from tailrace.spark.producing import BatchProducer, ForeignWriter, LostProducer, RowTooLarge
from tailrace.testing.port import free_port

Batches = Mapping[TopicPartition, BytesLike]
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tailrace.Broker]:
    with tailrace.Broker(data_dir=tmp_path / "broker", fsync="os") as running:
        running.create_topic("orders", partitions=3)
        yield running


@pytest.fixture
def link(broker: tailrace.Broker) -> Iterator[BrokerLink]:
    link = BrokerLink(broker.bootstrap_servers, request_timeout_s=60.0)
    yield link
    link.close()


def rows_of(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def values_in(broker: tailrace.Broker, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in broker.read(topic, partition=partition)]


class Interference:
    """Stands between the client and `produce_to`; each produce is given to the next of `acts`, if any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[bytes] = []
        self.acts: list[Callable[[], int | None]] = []
        """Called after (or, for a code, instead of) the real thing: an error code to answer with, or None."""
        self.watch: Callable[[], object] = lambda: None
        self._real = produce_to
        monkeypatch.setattr(kafka, "produce_to", self._produce_to)

    async def _produce_to(
        self, client: KafkaClient, node: int, batches: Batches, **how: Any
    ) -> dict[TopicPartition, Produced]:
        self.sent += [bytes(batch) for batch in batches.values()]
        self.watch()
        act = self.acts.pop(0) if self.acts else None
        if act is None:
            return await self._real(client, node, batches, **how)
        if (code := act()) is not None:
            return {partition: Produced(error_code=code) for partition in batches}
        await self._real(client, node, batches, **how)
        raise ConnectionLost("the reply was lost")


@pytest.fixture
def interference(monkeypatch: pytest.MonkeyPatch) -> Interference:
    return Interference(monkeypatch)


def test_rows_arrive_in_order_with_everything_they_have(broker: tailrace.Broker, link: BrokerLink) -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([b"a", None], pa.binary()),
            "value": pa.array([b"1", None], pa.binary()),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}, {"key": "n", "value": None}], []],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([1_700_000_000_123_000, 1_600_000_000_000_000], pa.timestamp("us", "UTC")),
        }
    )
    with BatchProducer(link) as producer:
        producer.send("orders", 1, rows)
        assert producer.flush() == {TopicPartition("orders", 1): 2}
    first, second = broker.read("orders")
    assert (first.key, first.value, first.partition, first.timestamp) == (b"a", b"1", 1, 1_700_000_000_123)
    assert first.headers == (("h", b"x"), ("n", None))
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert second.timestamp == 1_600_000_000_000


def test_small_pieces_share_a_batch_and_many_partitions_their_time(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    with BatchProducer(link) as producer:
        for number in range(300):
            producer.send("orders", number % 3, rows_of(b"%d" % number))
        producer.flush()
    assert len(interference.sent) == 3
    for partition in range(3):
        expected = [b"%d" % number for number in range(300) if number % 3 == partition]
        assert values_in(broker, partition=partition) == expected


def test_no_batch_is_larger_than_asked_and_sequences_go_on(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    values = [b"%05d" % number * 20 for number in range(2000)]
    with BatchProducer(link, batch_bytes_max=4096, in_flight_bytes_max=10_000) as producer:
        for first in range(0, 2000, 250):
            producer.send("orders", 0, rows_of(*values[first : first + 250]))
        assert producer.flush() == {ORDERS: 2000}
    assert values_in(broker) == values
    views = [read_batch(batch) for batch in interference.sent]
    assert len(views) > 40 and max(view.size for view in views) <= 4096
    assert [view.base_sequence for view in views] == [
        sum(v.count for v in views[:i]) for i in range(len(views))
    ]
    assert len({view.producer_id for view in views}) == 1 and views[0].producer_id >= 0


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_arrives(broker: tailrace.Broker, link: BrokerLink, codec: Compression) -> None:
    with BatchProducer(link, compression=codec) as producer:
        producer.send("orders", 0, rows_of(b"same" * 100, b"same" * 100))
        producer.flush()
    assert values_in(broker) == [b"same" * 100] * 2


def test_what_waits_or_travels_is_bounded(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    seen: list[int] = []
    with BatchProducer(link, batch_bytes_max=1000, in_flight_bytes_max=5000) as producer:
        interference.watch = lambda: seen.append(producer.bytes_in_flight)
        for number in range(200):
            producer.send("orders", number % 3, rows_of(b"x" * 300))
        producer.flush()
        assert producer.bytes_in_flight == 0
    assert 1000 < max(seen) <= 5000


def test_a_lost_reply_does_not_write_twice(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    interference.acts = [lambda: None, lambda: None]
    with BatchProducer(link) as producer:
        producer.expect(ORDERS, 0)
        producer.send("orders", 0, rows_of(b"1", b"2"))
        assert producer.flush() == {ORDERS: 2}
        producer.send("orders", 0, rows_of(b"3"))
        assert producer.flush() == {ORDERS: 3}
    assert values_in(broker) == [b"1", b"2", b"3"]
    assert interference.sent[0] == interference.sent[1] == interference.sent[2]


def test_a_duplicate_that_the_broker_cannot_place_counts_as_arrived(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    interference.acts = [lambda: None, lambda: int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    with BatchProducer(link) as producer:
        producer.expect(ORDERS, 0)
        producer.send("orders", 0, rows_of(b"1", b"2"))
        assert producer.flush() == {ORDERS: 2}
    assert values_in(broker) == [b"1", b"2"]


def test_what_may_go_away_is_tried_again_with_the_same_bytes(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    interference.acts = [lambda: int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 2
    with BatchProducer(link) as producer:
        producer.send("orders", 0, rows_of(b"1"))
        producer.flush()
    assert values_in(broker) == [b"1"]
    assert len(interference.sent) == 3 and len(set(interference.sent)) == 1


def test_what_never_goes_away_ends_at_the_deadline(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    interference.acts = [lambda: int(ErrorCode.NOT_ENOUGH_REPLICAS)] * 1000
    with BatchProducer(link, delivery_timeout_s=0.3) as producer:
        producer.send("orders", 0, rows_of(b"1"))
        with pytest.raises(TimedOut, match=r"producing to orders-0 did not succeed within 0\.3 s"):
            producer.flush()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_lost_producer_is_an_error_and_nothing_more_is_sent(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference, code: ErrorCode
) -> None:
    interference.acts = [lambda: int(code)]
    with BatchProducer(link) as producer:
        producer.send("orders", 0, rows_of(b"1"))
        with pytest.raises(LostProducer, match=f"orders-0: {code.name}"):
            producer.flush()
        with pytest.raises(LostProducer):
            producer.send("orders", 1, rows_of(b"2"))
        with pytest.raises(LostProducer):
            producer.flush()
    assert len(interference.sent) == 1 and values_in(broker) == []


def test_another_writer_is_noticed(broker: tailrace.Broker, link: BrokerLink) -> None:
    with BatchProducer(link) as producer:
        producer.expect(ORDERS, 0)
        producer.send("orders", 0, rows_of(b"1", b"2"))
        producer.flush()
        broker.produce("orders", b"foreign", partition=0)
        producer.send("orders", 0, rows_of(b"3"))
        with pytest.raises(ForeignWriter, match="orders-0: rows went to offset 3, not 2"):
            producer.flush()


def test_a_writer_before_the_first_row_is_noticed(broker: tailrace.Broker, link: BrokerLink) -> None:
    broker.produce("orders", b"foreign", partition=0)
    with BatchProducer(link) as producer:
        producer.expect(ORDERS, 0)
        producer.send("orders", 0, rows_of(b"1"))
        with pytest.raises(ForeignWriter, match="offset 1, not 0"):
            producer.flush()


def test_an_expectation_comes_before_the_rows(broker: tailrace.Broker, link: BrokerLink) -> None:
    with BatchProducer(link) as producer:
        producer.send("orders", 0, rows_of(b"1"))
        with pytest.raises(ValueError, match="orders-0 are under way"):
            producer.expect(ORDERS, 0)


def test_batches_too_large_for_the_topic_are_cut(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "2000"})
    values = [b"%04d" % number * 25 for number in range(400)]
    with BatchProducer(link, batch_bytes_max=8000) as producer:
        producer.expect(TopicPartition("small", 0), 0)
        producer.send("small", 0, rows_of(*values[:200]))
        producer.flush()
        refused = len(interference.sent)
        producer.send("small", 0, rows_of(*values[200:]))
        assert producer.flush() == {TopicPartition("small", 0): 400}
    assert values_in(broker, "small") == values
    later = [read_batch(batch) for batch in interference.sent[refused:]]
    assert sum(view.count for view in later) == 200, "once the limit is known, nothing is refused any more"


def test_a_cut_batch_keeps_keys_headers_and_times(broker: tailrace.Broker, link: BrokerLink) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "300"})
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": pa.array([b"a", None, b"c"], pa.binary()),
            "value": pa.array([b"1" * 150, b"2" * 150, None], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], [], []], header),
            "timestamp": pa.array([3_000_000, 1_000_000, 2_000_000], pa.timestamp("us", "UTC")),
        }
    )
    with BatchProducer(link) as producer:
        producer.send("small", 0, rows)
        producer.flush()
    got = [(each.key, each.value, each.headers, each.timestamp) for each in broker.read("small")]
    assert got == [
        (b"a", b"1" * 150, (("h", b"x"),), 3000),
        (None, b"2" * 150, (), 1000),
        (b"c", None, (), 2000),
    ]


def test_a_row_too_large_for_the_topic_names_its_size(broker: tailrace.Broker, link: BrokerLink) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "1000"})
    with BatchProducer(link) as producer:
        producer.send("small", 0, rows_of(b"fits", b"x" * 2000))
        with pytest.raises(RowTooLarge, match=r"small-0 takes 20\d\d bytes.*max\.message\.bytes"):
            producer.flush()


def test_a_row_too_large_for_a_request_names_the_option(broker: tailrace.Broker, link: BrokerLink) -> None:
    with BatchProducer(link, batch_bytes_max=500, request_bytes_max=1000) as producer:
        producer.send("orders", 0, rows_of(b"x" * 800))  # larger than a batch usually is, and allowed
        producer.flush()
        with pytest.raises(RowTooLarge, match=r"row 0 alone takes 20\d\d bytes.*kafka\.max\.request\.size"):
            producer.send("orders", 0, rows_of(b"x" * 2000))
        with pytest.raises(RowTooLarge):
            producer.send("orders", 0, rows_of(b"what came after it"))
    assert values_in(broker) == [b"x" * 800]


@pytest.mark.parametrize(("topic", "partition"), [("orders", 3), ("orders", -1), ("nowhere", 0)])
def test_a_partition_that_is_not_there_is_an_error(
    broker: tailrace.Broker, link: BrokerLink, topic: str, partition: int
) -> None:
    with BatchProducer(link) as producer:
        producer.send(topic, partition, rows_of(b"1"))
        with pytest.raises(BrokerError) as caught:
            producer.flush()
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_rows_of_changing_columns_keep_their_order(broker: tailrace.Broker, link: BrokerLink) -> None:
    text = pa.record_batch({"value": pa.array(["2"]), "key": pa.array(["k"])})
    with BatchProducer(link) as producer:
        for rows in (rows_of(b"1"), text, rows_of(b"3")):
            producer.send("orders", 0, rows)
        producer.flush()
    assert values_in(broker) == [b"1", b"2", b"3"]


def test_no_rows_are_no_work(broker: tailrace.Broker, link: BrokerLink, interference: Interference) -> None:
    with BatchProducer(link) as producer:
        producer.send("orders", 0, rows_of())
        assert producer.flush() == {}
    assert interference.sent == []


def test_what_is_not_flushed_before_the_end_is_given_up(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    sent = threading.Event()

    def refuse() -> int:
        sent.set()
        return int(ErrorCode.NOT_ENOUGH_REPLICAS)

    interference.acts = [refuse] * 1000
    with BatchProducer(link, batch_bytes_max=200) as producer:
        producer.send("orders", 0, rows_of(b"x" * 100, b"x" * 100))
        assert sent.wait(60)
    with pytest.raises(ClientClosed):
        producer.send("orders", 0, rows_of(b"2"))
    interference.acts = []
    link.run(lambda client: client.metadata([]))  # whatever the loop had left to do, it has done now
    assert values_in(broker) == []


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with tailrace.Broker(data_dir=tmp_path, port=port, fsync="os") as first:
        first.create_topic("orders", partitions=2)
        link = BrokerLink(first.bootstrap_servers, request_timeout_s=60.0)
        producer = BatchProducer(link, batch_bytes_max=1000)
        for number in range(100):
            producer.send("orders", number % 2, rows_of(b"%03d" % number * 30))
    # Some batches have arrived, some were cut off, some are not sent yet; nobody waits for any of them.
    with tailrace.Broker(data_dir=tmp_path, port=port, fsync="os") as second, producer:
        for number in range(100, 200):
            producer.send("orders", number % 2, rows_of(b"%03d" % number * 30))
        ends = producer.flush()
        assert ends == {TopicPartition("orders", each): 100 for each in range(2)}
        for partition in range(2):
            expected = [b"%03d" % number * 30 for number in range(partition, 200, 2)]
            assert values_in(second, partition=partition) == expected
        link.close()


def test_a_link_that_closes_ends_the_wait(
    broker: tailrace.Broker, link: BrokerLink, interference: Interference
) -> None:
    refused = threading.Event()

    def refuse() -> int:
        refused.set()
        return int(ErrorCode.NOT_ENOUGH_REPLICAS)

    interference.acts = [refuse] * 1000
    with BatchProducer(link, batch_bytes_max=100) as producer:
        producer.send("orders", 0, rows_of(b"1" * 30, b"1" * 30, b"1" * 30))
        assert refused.wait(60)
        closing = threading.Thread(target=link.close)
        closing.start()
        with pytest.raises((ClientClosed, BrokerError)):
            producer.flush()
        closing.join()
