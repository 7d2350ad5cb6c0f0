"""A batch read: the offsets are settled once, when Spark plans the query, and every task reads a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.client.kafka import KafkaClient
from tailrace.model import TopicPartition
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.source import lookup
from tailrace.spark.source.columns import arrow_schema
from tailrace.spark.source.predicate import Bounds, plan_bounds, plan_narrowed
from tailrace.spark.source.settings import SourceSettings
from tailrace.spark.source.task import plan_tasks, read_task


class _Pushdown:
    """`pushFilters` of a reader, in a shape that Spark accepts whether or not it pushes filters down.

    With spark.sql.python.filterPushdown.enabled=false, the default, Spark refuses a reader whose pushFilters
    is not the one of its base class, which it tells by `__func__`. With true it calls whatever is there.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)  # pyspark 4.0 has none

    def __call__(self, filters: Iterable[Any]) -> Iterable[Any]:
        return self._reader.narrow(filters)


class BatchReader(DataSourceReader):
    """Reads what is between two places; made by the data source, pickled by Spark."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema: pa.Schema = arrow_schema(schema)
        self._bounds = Bounds()

    @property
    def pushFilters(self) -> Any:
        return _Pushdown(self)

    def narrow(self, filters: Iterable[Any]) -> list[Any]:
        """Read less, as filters allow; those that Spark has to apply again."""
        self._bounds, left = plan_bounds(filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """The tasks of the query."""
        ranges = self._settings.link.link().run(self._find_ranges)
        return [InputPartition(task) for task in plan_tasks(ranges, self._settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        return read_task(partition.value or [], self._settings, self._schema)

    async def _find_ranges(self, client: KafkaClient) -> list[OffsetRange]:
        settings = self._settings
        found = (await lookup.find_partitions(client, settings.topics)).partitions
        starts = await lookup.resolve(client, settings.start, found, read_committed=settings.read_committed)
        ends = await lookup.resolve(client, settings.end, found, read_committed=settings.read_committed)
        ranges = [
            OffsetRange(topic=tp.topic, partition=tp.partition, start=starts[tp], end=ends[tp])
            for tp in found
            if starts[tp] < ends[tp]
        ]
        return plan_narrowed(ranges, self._bounds, first_in_time=await self._first_in_time(client, ends))

    async def _first_in_time(
        self, client: KafkaClient, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The first offsets as late as a filter asks for; the end, where no record is."""
        time_ms = self._bounds.time_ms_min
        wanted = [tp for tp in ends if self._bounds.admits(tp)]
        if time_ms is None or not wanted:
            return {}
        found = await client.list_offsets(dict.fromkeys(wanted, time_ms))
        return {tp: each.offset if each.offset >= 0 else ends[tp] for tp, each in found.items()}
