"""Clients: of the native listener, and of any broker that speaks the Kafka protocol.

The native listener has subscriptions with acknowledgements: `BrokerClient` for plain threads, `AsyncClient`
for asyncio. Of the Kafka protocol, Tailrace's and Apache Kafka's alike, there are `KafkaClient`, `Producer`
and `Consumer` for asyncio; for plain threads `MessageProducer` and `MessageConsumer`, which take Kafka's
property names, and `AdminClient`. `tailrace.errors` has what they raise.
All but the two for administration take an `Encryption`, with which brokers see no values.

    broker_client.py   the native client; async_client.py is its twin, native/ has their parts

    kafka.py           the client: versions, metadata, coordinators, retries
    connection.py      one connection; pool.py keeps them and opens them again
    producer.py        batches in accumulator.py, partitions chosen by wire/kafka/partitioner.py
    transaction.py     its transactions
    consumer.py        fetcher.py gets batches, reading.py takes records out, membership.py keeps the group
    admin.py           topics, configs, groups; admin_client.py is `AdminClient`, the same without asyncio
    message_producer.py, message_consumer.py   the same without asyncio

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.accumulator import RecordMetadata
    from tailrace.client.admin_client import (
        AdminClient,
        GroupDescription,
        PartitionDescription,
        TopicDescription,
    )
    from tailrace.client.async_client import AsyncClient
    from tailrace.client.broker_client import BrokerClient
    from tailrace.client.consumer import Consumer, ConsumerConfig
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.message_consumer import ConsumerRecord, ConsumerRecords, MessageConsumer
    from tailrace.client.message_producer import MessageProducer, ProducerRecord
    from tailrace.client.native.blocking import Message, Subscription
    from tailrace.client.native.message import AsyncMessage
    from tailrace.client.native.published import Published
    from tailrace.client.native.reconnect import Reconnect
    from tailrace.client.native.status import Status
    from tailrace.client.native.subscription import AsyncSubscription
    from tailrace.client.native.subscriptions import Notice
    from tailrace.client.producer import Producer, ProducerConfig
    from tailrace.client.transaction import GroupMetadata
    from tailrace.model import TopicPartition
    from tailrace.security.messages import Encryption

_HOMES = {
    "AdminClient": "tailrace.client.admin_client",
    "AsyncClient": "tailrace.client.async_client",
    "AsyncMessage": "tailrace.client.native.message",
    "AsyncSubscription": "tailrace.client.native.subscription",
    "AsyncTransaction": "tailrace.client.native.transaction",
    "BrokerClient": "tailrace.client.broker_client",
    "Consumer": "tailrace.client.consumer",
    "ConsumerConfig": "tailrace.client.consumer",
    "ClientTls": "tailrace.client.tls",
    "ConsumerRecord": "tailrace.client.message_consumer",
    "ConsumerRecords": "tailrace.client.message_consumer",
    "Encryption": "tailrace.security.messages",
    "GroupDescription": "tailrace.client.admin_client",
    "GroupMetadata": "tailrace.client.transaction",
    "KafkaClient": "tailrace.client.kafka",
    "Message": "tailrace.client.native.blocking",
    "MessageConsumer": "tailrace.client.message_consumer",
    "MessageProducer": "tailrace.client.message_producer",
    "Notice": "tailrace.client.native.subscriptions",
    "PartitionDescription": "tailrace.client.admin_client",
    "Producer": "tailrace.client.producer",
    "ProducerConfig": "tailrace.client.producer",
    "ProducerRecord": "tailrace.client.message_producer",
    "Published": "tailrace.client.native.published",
    "Reconnect": "tailrace.client.native.reconnect",
    "RecordMetadata": "tailrace.client.accumulator",
    "Status": "tailrace.client.native.status",
    "Subscription": "tailrace.client.native.blocking",
    "TopicDescription": "tailrace.client.admin_client",
    "TopicPartition": "tailrace.model",
    "Transaction": "tailrace.client.native.blocking_transaction",
}

__all__ = [
    "AdminClient",
    "AsyncClient",
    "AsyncMessage",
    "AsyncSubscription",
    "AsyncTransaction",
    "BrokerClient",
    "ClientTls",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerRecords",
    "Encryption",
    "GroupDescription",
    "GroupMetadata",
    "KafkaClient",
    "Message",
    "MessageConsumer",
    "MessageProducer",
    "Notice",
    "PartitionDescription",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "Published",
    "Reconnect",
    "RecordMetadata",
    "Status",
    "Subscription",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
