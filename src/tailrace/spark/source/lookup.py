"""What the readers ask of the broker: partitions, offsets, sizes, and whether something new has come.

Every function takes a client and is run through a link. Only requests that every Kafka broker answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.client.error import ClientError
from tailrace.client.kafka import KafkaClient
from tailrace.client.metadata import TopicInfo
from tailrace.client.offsets import LATEST
from tailrace.client.pool import Channel
from tailrace.client.transfer import Fetched, fetch_from
from tailrace.model import BrokerError, ConfigError, ErrorCode, TopicPartition
from tailrace.records import Walk, pass_over
from tailrace.spark.source.place import Place
from tailrace.spark.source.settings import Topics

SAMPLE_BYTES = 64 * 1024

# A fetch that waits for records must not hold up the questions on the ordinary connection.
_GROWTH = Channel("growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The partitions that there are, and which topic each name stands for."""

    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, str] = field(default_factory=dict)
    """By topic; without those whose broker has no ids (before Kafka 2.8)."""


async def find_partitions(client: KafkaClient, topics: Topics, *, passes_missing: bool = False) -> Found:
    """The partitions of a subscription; a topic by name that is not there is an error, or passed over."""
    names = topics.names or sorted({tp.topic for tp in topics.assigned})

    async def attempt() -> list[TopicInfo]:
        answer = await client.metadata(None if topics.pattern is not None else names)
        infos = _matching(answer, topics)
        for info in infos:
            if not (passes_missing and info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                info.check()
        return [info for info in infos if not info.error]

    infos = await client.retrying("finding partitions", attempt)
    found = {TopicPartition(info.name, partition) for info in infos for partition in info.partitions}
    if topics.assigned:
        missing = [str(tp) for tp in topics.assigned if tp not in found]
        if missing and not passes_missing:
            raise ConfigError(f"option assign: there is no partition {', '.join(missing)}")
        found &= set(topics.assigned)
    ids = {info.name: info.topic_id.hex for info in infos if info.topic_id.int}
    return Found(partitions=tuple(sorted(found)), ids=ids)


def _matching(answer: Mapping[str, TopicInfo], topics: Topics) -> list[TopicInfo]:
    if topics.pattern is None:
        return list(answer.values())
    return [
        info
        for name, info in answer.items()
        if topics.pattern.fullmatch(name) and (topics.internal or not info.internal)
    ]


async def bounds(
    client: KafkaClient, partitions: Sequence[TopicPartition], *, at: int, read_committed: bool
) -> dict[TopicPartition, int]:
    """The earliest or the latest offset of each partition."""
    if not partitions:
        return {}
    found = await client.list_offsets(dict.fromkeys(partitions, at), read_committed=read_committed)
    return {tp: found[tp].offset for tp in partitions}


async def resolve(
    client: KafkaClient, place: Place, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """The offsets that a place stands for, of all partitions."""
    if place.word is not None:
        return await bounds(client, partitions, at=place.word, read_committed=read_committed)
    if place.time_ms is not None:
        times = dict.fromkeys(partitions, place.time_ms)
        return await _at_times(client, place, times, read_committed=read_committed)
    given = place.times_ms or place.offsets
    if set(given) != set(partitions):
        raise ConfigError(_mismatch(place, given, partitions))
    if place.times_ms:
        return await _at_times(client, place, place.times_ms, read_committed=read_committed)
    known = {tp: offset for tp, offset in given.items() if offset >= 0}
    asked = {tp: word for tp, word in given.items() if word < 0}
    found = await client.list_offsets(asked, read_committed=read_committed) if asked else {}
    return known | {tp: each.offset for tp, each in found.items()}


async def _at_times(
    client: KafkaClient, place: Place, times_ms: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, int]:
    if not times_ms:
        return {}
    found = await client.list_offsets(times_ms, read_committed=read_committed)
    late = [tp for tp in times_ms if found[tp].offset < 0]
    if late and not place.else_latest:
        raise ConfigError(
            f"option {place.option}: {late[0]} has no record at or after {times_ms[late[0]]} ms."
            " Use an earlier time, or startingOffsetsByTimestampStrategy=latest to start at its end"
        )
    ends = await bounds(client, late, at=LATEST, read_committed=read_committed)
    return {tp: each.offset for tp, each in found.items()} | ends


def _mismatch(place: Place, given: Mapping[TopicPartition, int], found: Sequence[TopicPartition]) -> str:
    missing = sorted(set(found) - set(given))
    extra = sorted(set(given) - set(found))
    what = f"says nothing of {missing[0]}" if missing else f"names {extra[0]}, which is not being read"
    fix = " Give each a time" if place.times_ms else " Give each an offset, -2 for earliest or -1 for latest"
    return f"option {place.option} {what}: it must name exactly the {len(found)} partitions read.{fix}"


async def sample_sizes(
    client: KafkaClient, positions: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, float]:
    """Bytes per offset, as they lie in the log, at the beginning of what is to be read next.

    A partition that cannot be sampled now is left out: this only serves an estimate.
    """
    fetched = await client.fetch(
        positions,
        max_wait_ms=0,
        max_bytes=max(1, len(positions)) * SAMPLE_BYTES,
        partition_max_bytes=SAMPLE_BYTES,
        read_committed=read_committed,
    )
    sizes: dict[TopicPartition, float] = {}
    for tp, part in fetched.items():
        walk = Walk(positions[tp])
        batches = walk.over(part.records, may_be_cut=True, on_damage=pass_over)
        bytes_seen = sum(visible.batch.size for visible in batches)
        if (count := walk.next_offset - positions[tp]) > 0 and bytes_seen:
            sizes[tp] = bytes_seen / count
    return sizes


async def wait_growth(
    client: KafkaClient, positions: Mapping[TopicPartition, int], *, read_committed: bool, timeout_s: float
) -> None:
    """Suspends until some partition has records after its position, or until the time is up.

    An error is left to the caller's next request, which has the better message.
    """
    try:
        async with asyncio.timeout(timeout_s):
            tasks = await _growth_tasks(client, positions, read_committed, timeout_s)
            try:
                while tasks:
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    grown = [_has_grown(task) for task in done]  # of all: each error has to be looked at
                    if any(grown):
                        return
            finally:
                for task in tasks:
                    task.cancel()
            # An answer without records before its time: a transaction is open, or a leader is moving.
            await asyncio.sleep(timeout_s)
    except (TimeoutError, BrokerError, ClientError):
        return


async def _growth_tasks(
    client: KafkaClient, positions: Mapping[TopicPartition, int], read_committed: bool, timeout_s: float
) -> set[asyncio.Task[dict[TopicPartition, Fetched]]]:
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, offset in positions.items():
        by_leader.setdefault((await client.leader(tp)).leader, {})[tp] = offset
    return {
        asyncio.create_task(
            fetch_from(
                client,
                leader,
                wanted,
                max_wait_ms=int(timeout_s * 1000),
                min_bytes=1,
                max_bytes=1,
                partition_max_bytes=1,
                read_committed=read_committed,
                channel=_GROWTH,
            )
        )
        for leader, wanted in by_leader.items()
    }


def _has_grown(task: asyncio.Task[dict[TopicPartition, Fetched]]) -> bool:
    # An error counts as news too: the question that follows will meet it.
    return task.exception() is not None or any(
        each.error_code or len(each.records) for each in task.result().values()
    )
