"""What an archive asks the broker: which partitions there are, how far each reaches, where a time is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC

from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.link import BrokerLink
from tailrace.spark.pipelines.archive_plan import Reach
from tailrace.spark.source.lookup import find_partitions
from tailrace.spark.source.settings import Topics
from tailrace.wire.json.moment import parse_moment


def read_reach(
    link: BrokerLink, topics: Sequence[str], *, read_committed: bool
) -> dict[TopicPartition, Reach]:
    """Every partition of some topics, new ones included; UnknownTopic names one that is not there."""

    async def ask(client: KafkaClient) -> dict[TopicPartition, Reach]:
        return await client.retrying(
            f"asking for the offsets of {', '.join(topics)}",
            lambda: _read_reach(client, topics, read_committed=read_committed),
        )

    return link.run(ask)


async def _read_reach(
    client: KafkaClient, topics: Sequence[str], *, read_committed: bool
) -> dict[TopicPartition, Reach]:
    described = await client.metadata(topics)
    partitions: list[TopicPartition] = []
    for name in topics:
        described[name].check()
        partitions += [TopicPartition(name, each) for each in described[name].partitions]
    starts, ends = await asyncio.gather(
        client.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        client.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed),
    )
    highs = await client.list_offsets(dict.fromkeys(partitions, LATEST)) if read_committed else ends
    return {
        tp: Reach(
            start=starts[tp].offset,
            end=ends[tp].offset,
            high=max(highs[tp].offset, ends[tp].offset),
            topic_id=described[tp.topic].topic_id.hex if described[tp.topic].topic_id.int else "",
        )
        for tp in partitions
    }


def read_topic_ids(link: BrokerLink, topics: Sequence[str]) -> dict[str, str]:
    """Which topics the names stand for now; without those that are gone, or whose broker has no ids."""
    wanted = Topics(names=tuple(topics))
    return dict(link.run(lambda client: find_partitions(client, wanted, passes_missing=True)).ids)


def read_starts(
    link: BrokerLink,
    reach: Mapping[TopicPartition, Reach],
    wanted: Iterable[TopicPartition],
    *,
    starting: str,
) -> dict[TopicPartition, int]:
    """Where to begin with some partitions: at the first record there is, at the end, or at a time."""
    partitions = list(wanted)
    if starting == "earliest":
        return {tp: reach[tp].start for tp in partitions}
    if starting == "latest" or not partitions:
        return {tp: reach[tp].end for tp in partitions}
    time_ms = parse_starting(starting)
    found = link.run(lambda client: client.list_offsets(dict.fromkeys(partitions, time_ms)))
    # No record is that young: what comes later is.
    return {tp: at.offset if at.offset >= 0 else reach[tp].end for tp, at in found.items()}


def parse_starting(text: str) -> int:
    """Milliseconds since 1970 of an ISO time, in UTC where it names no zone, or of `2h` ago."""
    try:
        return parse_moment(text, now_ms=time.time_ns() // 1_000_000, zone=UTC)
    except ConfigError as error:
        raise ConfigError(f"archive: starting is earliest, latest or a time, and {error}") from None
