"""DescribeLogDirs: the one data directory of this node, and the size of every partition in it.

v3  an error of the whole answer: before, a client without the right to it is told of no directory
v4  the size of the disk and what is free of it (KIP-827); -1 where logs are in memory or the disk cannot tell

Null topics are all; a partition that is not held here is left out. Nothing moves between directories, so
nothing lags and nothing is a future replica.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress

from tailrace.broker.topic import Topic
from tailrace.kafka.call import Call
from tailrace.kafka.resources import data_directory
from tailrace.model import BrokerError
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

KEY = 35

_SIZES_FROM = 4


async def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    try:
        cluster = call.access.cluster(Operation.DESCRIBE)
    except BrokerError as error:
        return DescribeLogDirsResponse(error_code=error.code)
    topics = (_topic(topic, indexes) for topic, indexes in _asked(call, request))
    result = DescribeLogDirsResult(
        log_dir=data_directory(cluster), topics=[topic for topic in topics if topic.partitions]
    )
    if call.version >= _SIZES_FROM and (path := cluster.settings.get("log.dirs")):
        with suppress(OSError):
            usage = await asyncio.to_thread(shutil.disk_usage, path)
            result.total_bytes, result.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=[result])


def _asked(call: Call, request: DescribeLogDirsRequest) -> Iterator[tuple[Topic, Collection[int] | None]]:
    """Topics, and their partitions if not all are asked for."""
    if request.topics is None:
        for topic in call.access.topics(Operation.DESCRIBE):
            yield topic, None
        return
    for asked in request.topics:
        try:
            topic = call.access.topic(asked.topic, Operation.DESCRIBE)
        except BrokerError:
            continue  # what the session may not see is left out like what does not exist
        yield topic, set(asked.partitions)


def _topic(topic: Topic, indexes: Collection[int] | None) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.size_bytes)
            for partition in topic.partitions
            if partition.is_held_here and (indexes is None or partition.index in indexes)
        ],
    )
