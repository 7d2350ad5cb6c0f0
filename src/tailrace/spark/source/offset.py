"""The offset of a stream: the JSON that Spark writes to the checkpoint and gives back.

    {"v": 1,
     "pos":  {"orders": {"0": 17, "1": 4}},     where the batch ends, and the next one begins
     "from": {"orders": {"0": 10, "1": 4}},     where the batch begins
     "ids":  {"orders": "5f0c..."},             which topic that was
     "low":  {"orders": {"0": 0, "1": 0}}}      only from Spark before 4.2, after a restart

The beginning is kept with the end because Spark does not keep it: a query that is restarted before its first
batch is done asks for its initial offset again, and "latest" has moved on by then. It also says where new
partitions began, and where reading went on after a loss, so that a replayed batch is the same batch.

The initial offset has no "from". Spark compares offsets as text, so the keys are always in the same order.
The id of a topic tells one that was deleted and created again, even if it has grown as long as the old one.
Spark before 4.2 asks for the end of a batch without telling where it begins: where a process does not know
that either, having just started, it keeps the log's starts for partitions that turn out to be new.

A checkpoint that Spark's own Kafka source wrote holds only where batches end, and no ids of topics:

    {"orders": {"0": 17, "1": 4}}

It is read, so that a query can be moved over, and never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.offset_range import OffsetRange

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A stream's place between two batches."""

    positions: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int] | None = None
    """Of the batch that ends here; None if no batch does."""
    ids: Mapping[str, str] = field(default_factory=dict)
    lows: Mapping[TopicPartition, int] = field(default_factory=dict)


def write_offset(offset: StreamOffset) -> dict[str, Any]:
    """As Spark is to keep it."""
    written: dict[str, Any] = {"v": VERSION, "pos": _by_topic(offset.positions)}
    if offset.starts is not None:
        written["from"] = _by_topic(offset.starts)
    written["ids"] = dict(sorted(offset.ids.items()))
    if offset.lows:
        written["low"] = _by_topic(offset.lows)
    return written


def is_kafkas(written: Mapping[str, Any]) -> bool:
    """Whether Spark's own Kafka source wrote this; a topic of it may be named as a key of ours."""
    return all(isinstance(offsets, dict) for offsets in written.values())


def read_offset(written: Mapping[str, Any]) -> StreamOffset:
    """What was kept; ConfigError if this is an offset neither of ours nor of Spark's Kafka source."""
    if is_kafkas(written):
        return StreamOffset(positions=_by_partition(written, "offsets"), starts={})
    version = written.get("v")
    if version != VERSION:
        raise ConfigError(
            f"the checkpoint holds offsets of version {version!r}, and this source writes version {VERSION}."
            " Use the release that wrote it, or start over with a new checkpoint"
        )
    starts = written.get("from")
    ids = written.get("ids", {})
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise _damaged("ids")
    return StreamOffset(
        positions=_by_partition(written.get("pos"), "pos"),
        starts=None if starts is None else _by_partition(starts, "from"),
        ids=ids,
        lows=_by_partition(written.get("low", {}), "low"),
    )


def plan_batch(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
    """The ranges of the batch that Spark names by its start and its end."""
    if start == end:
        return []
    begun, ended = read_offset(start), read_offset(end)
    starts = ended.positions if ended.starts is None else ended.starts
    ranges = []
    for tp, until in sorted(ended.positions.items()):
        since = starts.get(tp, begun.positions.get(tp, ended.lows.get(tp, until)))
        if since < until:
            ranges.append(OffsetRange(topic=tp.topic, partition=tp.partition, start=since, end=until))
    return ranges


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    return written


def _by_partition(written: object, key: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    if not isinstance(written, dict):
        raise _damaged(key)
    for topic, offsets in written.items():
        if not isinstance(offsets, dict):
            raise _damaged(key)
        for partition, offset in offsets.items():
            if not (partition.isascii() and partition.isdigit()) or type(offset) is not int or offset < 0:
                raise _damaged(key)
            found[TopicPartition(topic, int(partition))] = offset
    return found


def _damaged(key: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint holds an offset whose {key!r} makes no sense: was it edited?"
        " Restore it, or start over with a new checkpoint"
    )
