"""Clients of any broker that speaks the Kafka protocol, Tailrace and Apache Kafka alike.

For asyncio there are `KafkaClient`, `Producer` and `Consumer`; for plain threads `MessageProducer` and
`MessageConsumer`, which take Kafka's property names.

    kafka.py           the client: versions, metadata, coordinators, retries
    connection.py      one connection; pool.py keeps them and opens them again
    producer.py        batches in accumulator.py, partitions chosen by partitioner.py
    consumer.py        fetcher.py gets batches, reading.py takes records out, membership.py keeps the group
    admin.py           topics, configs, groups
    message_producer.py, message_consumer.py   the same without asyncio

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.accumulator import RecordMetadata
    from tailrace.client.consumer import Consumer, ConsumerConfig
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.message_consumer import ConsumerRecord, ConsumerRecords, MessageConsumer
    from tailrace.client.message_producer import MessageProducer, ProducerRecord
    from tailrace.client.producer import Producer, ProducerConfig
    from tailrace.model import TopicPartition

_HOMES = {
    "Consumer": "tailrace.client.consumer",
    "ConsumerConfig": "tailrace.client.consumer",
    "ConsumerRecord": "tailrace.client.message_consumer",
    "ConsumerRecords": "tailrace.client.message_consumer",
    "KafkaClient": "tailrace.client.kafka",
    "MessageConsumer": "tailrace.client.message_consumer",
    "MessageProducer": "tailrace.client.message_producer",
    "Producer": "tailrace.client.producer",
    "ProducerConfig": "tailrace.client.producer",
    "ProducerRecord": "tailrace.client.message_producer",
    "RecordMetadata": "tailrace.client.accumulator",
    "TopicPartition": "tailrace.model",
}

__all__ = [
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerRecords",
    "KafkaClient",
    "MessageConsumer",
    "MessageProducer",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
