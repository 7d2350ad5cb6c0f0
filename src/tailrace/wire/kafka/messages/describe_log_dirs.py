"""DescribeLogDirs (API 35), versions 1-4.

The log directories of a broker, and the size of every partition in them. Null asks for all topics.
Version 3 brings an error of the whole answer, 4 the size of the disk.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None = None


class DescribableLogDirTopic(Message):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "3+"] = 0
    results: list[DescribeLogDirsResult] = []


class DescribeLogDirsResult(Message):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, "4+"] = -1
    usable_bytes: Annotated[Int64, "4+"] = -1


class DescribeLogDirsTopic(Message):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsPartition(Message):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False
