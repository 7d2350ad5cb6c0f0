"""The topic that a replay writes: made for it, or found to be one that it can go on with.

How many records a partition holds is how far the replay has come. That holds as long as nothing goes away
again: a log that was trimmed, that is compacted, or that deletes records of these ages is refused, and a new
topic keeps everything. Timestamps must stay as they are written, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.client.admin import Extent, create_topic, extents, topic_configs
from tailrace.model import BrokerError, ConfigError, ErrorCode, TopicPartition

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

KEEP_ALL: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
"""The settings of a topic made for a replay: its records are old, and yet they are to stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a replay needs of its target."""

    topic: str
    partitions: int
    exactly: bool
    """Whether more partitions would do as well: not if keys choose among them."""
    oldest_us: int | None
    """The earliest timestamp that may be written."""


async def prepare_target(client: KafkaClient, wanted: Wanted, *, now_ms: int) -> dict[int, int]:
    """Where each partition of the target ends, once it is there; ConfigError if it cannot be the target."""
    if (await client.metadata([wanted.topic]))[wanted.topic].error:
        await _create(client, wanted)
    topic = await client.topic(wanted.topic)
    partitions = [TopicPartition(wanted.topic, each) for each in sorted(topic.partitions)]
    configs = {each.name: each.value for each in await topic_configs(client, wanted.topic)}
    reaches = await extents(client, partitions)
    check_target(wanted, configs=configs, extents=[reaches[each] for each in partitions], now_ms=now_ms)
    return {each.partition: reaches[each].end for each in partitions}


async def _create(client: KafkaClient, wanted: Wanted) -> None:
    try:
        await create_topic(client, wanted.topic, partitions=wanted.partitions, configs=KEEP_ALL)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody, or our first attempt, was quicker
            raise


def check_target(
    wanted: Wanted, *, configs: Mapping[str, str | None], extents: Sequence[Extent], now_ms: int
) -> None:
    """ConfigError with the reason, if a replay could not say later how far it had come."""
    topic = wanted.topic
    count = len(extents)
    if count < wanted.partitions or (wanted.exactly and count != wanted.partitions):
        raise _refused(topic, f"it has {count} partitions, and {wanted.partitions} are needed")
    if "compact" in (configs.get("cleanup.policy") or ""):
        raise _refused(topic, "it is compacted, so records in it go away")
    if configs.get("message.timestamp.type", "CreateTime") != "CreateTime":
        raise _refused(topic, "it gives records timestamps of its own (message.timestamp.type)")
    for partition, extent in enumerate(extents):
        if extent.start > 0:
            raise _refused(topic, f"partition {partition} begins at offset {extent.start}, not at 0")
    retention_ms = int(configs.get("retention.ms") or -1)
    if retention_ms >= 0 and wanted.oldest_us is not None:
        oldest_ms = wanted.oldest_us // 1000
        if oldest_ms < now_ms - retention_ms:
            raise _refused(
                topic,
                f"it deletes what is older than {retention_ms} ms, as these records are. Or keep them there:"
                f" tailrace topic alter {topic} --config retention.ms=-1",
            )


def _refused(topic: str, why: str) -> ConfigError:
    return ConfigError(
        f"topic {topic} cannot be the target of a replay: {why}. Choose another with --to-topic"
    )
