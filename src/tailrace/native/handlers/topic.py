"""CREATE_TOPIC: a topic, with settings under Kafka's names. By default its times are those of arrival.

A topic that exists is created once more with success if it is what was asked for: as far as partitions and
settings were named, they must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.broker.configs import check_topic_configs, describe_topic
from tailrace.broker.topic import NewTopic, Topic
from tailrace.model import BrokerError, ErrorCode
from tailrace.native.property import PARTITION_MAX, number_of, settings_of, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)
_TIMESTAMP_TYPE = "message.timestamp.type"


def create(protocol: NativeProtocol, frame: Frame) -> None:
    properties = frame.properties
    name = text_of(properties, "_topic")
    asked = number_of(properties, "_partitions", least=1, most=PARTITION_MAX, default=0)
    configs = settings_of(properties)
    check_topic_configs(configs)
    protocol.run(
        "create topic", frame.sequence, _create(protocol, frame.sequence, name, asked, configs), holds=True
    )


async def _create(
    protocol: NativeProtocol, sequence: int, name: str, partitions: int, configs: Mapping[str, str]
) -> bytes:
    all_configs = {_TIMESTAMP_TYPE: "LogAppendTime", **configs}
    new = NewTopic(name=name, partitions=partitions or 1, configs=all_configs)
    topic = await protocol.access.ensure_topic(new)
    _check_same(protocol, topic, partitions, configs)
    properties = {"_topic_id": str(topic.id), "_partitions": str(len(topic.partitions))}
    return write_frame(_ACK, sequence=sequence, properties=properties)


def _check_same(protocol: NativeProtocol, topic: Topic, partitions: int, configs: Mapping[str, str]) -> None:
    existing = len(topic.partitions)
    if partitions not in (0, existing):
        raise _exists(topic, f"{existing} partitions, not {partitions}")
    if configs:
        entries = describe_topic(topic.configs, protocol.access.topic_defaults)
        values = {entry.name: entry.value for entry in entries}
        for name, value in configs.items():
            if values.get(name) != value:
                raise _exists(topic, f"{name} = {values.get(name)}, not {value[:100]}")


def _exists(topic: Topic, difference: str) -> BrokerError:
    return BrokerError(
        f"topic {topic.name} exists with {difference}. Use it as it is, or choose another name",
        code=ErrorCode.TOPIC_ALREADY_EXISTS,
    )
