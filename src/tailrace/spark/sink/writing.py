"""One task of a write: Arrow batches in, records in partitions out. Runs in Spark's Python workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.client.error import UnknownTopic
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.encryption import Encrypting, SparkEncryption
from tailrace.spark.options import LinkSettings
from tailrace.spark.sink.columns import Columns
from tailrace.spark.sink.delivery import Delivery, Written
from tailrace.spark.sink.routing import Router

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.spark.link import BrokerLink


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where rows go and how; picklable."""

    link: LinkSettings
    columns: Columns
    delivery: Delivery
    encryption: SparkEncryption | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of a task and wait until they have arrived."""
        link = self.link.link()
        router = Router(
            self.columns,
            lambda topic: count_partitions(link, topic),
            stick_bytes=self.delivery.settings.batch_bytes_max,
        )
        encrypting = None if self.encryption is None else Encrypting(self.encryption)
        counts: Counter[TopicPartition] = Counter()
        writing = self.delivery.begin(link)
        if writing.producer is None:
            for _ in batches:  # Spark wants them taken
                pass
            return writing.end(counts)
        try:
            with writing.producer as producer:
                for batch in batches:
                    for topic, partition, rows in router.route(batch):
                        sealed = rows if encrypting is None else encrypting.seal(topic, rows)
                        producer.send(topic, partition, sealed)
                        counts[TopicPartition(topic, partition)] += rows.num_rows
                return writing.end(counts)
        except BaseException:
            writing.fail()
            raise


def count_partitions(link: BrokerLink, topic: str) -> int:
    """How many partitions a topic has now; the broker may create it, if it does such things."""

    async def ask(client: KafkaClient) -> int:
        # Workers live long: what an earlier task learnt may be old, and keys must go where all others do.
        client.cluster.topics.pop(topic, None)
        return len((await client.topic(topic, create=True)).partitions)

    try:
        return link.run(ask)
    except UnknownTopic as error:
        raise ConfigError(
            f"topic {topic} does not exist, and the broker does not create topics by itself."
            f" Try: tailrace topic create {topic}"
        ) from error
