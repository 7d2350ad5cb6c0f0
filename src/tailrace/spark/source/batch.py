"""A batch read: the offsets are settled once, when Spark plans the query, and every task reads a part.

A start beyond the end of a log is data loss: offsets only grow, so the offset comes from another log. A start
after the end of the read is no loss if the log reaches that far: the range is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import TopicPartition
from tailrace.spark.data_loss import DataLoss, lost
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.source import lookup
from tailrace.spark.source.columns import arrow_schema
from tailrace.spark.source.offset import StreamOffset
from tailrace.spark.source.predicate import Bounds, plan_bounds, plan_narrowed
from tailrace.spark.source.settings import SourceSettings
from tailrace.spark.source.task import plan_tasks, read_task
from tailrace.spark.source.trigger import LogView, plan_losses


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
        self._schema: pa.Schema = arrow_schema(schema, decodes=settings.value is not None)
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
        await self._check_losses(client, starts)
        ranges = [
            OffsetRange(topic=tp.topic, partition=tp.partition, start=starts[tp], end=ends[tp])
            for tp in found
            if starts[tp] < ends[tp]
        ]
        return plan_narrowed(ranges, self._bounds, first_in_time=await self._first_in_time(client, ends))

    async def _check_losses(self, client: KafkaClient, starts: Mapping[TopicPartition, int]) -> None:
        """Raises DataLoss if an offset of the options lies beyond the end of its log, unless that may be."""
        given = [tp for tp, offset in self._settings.start.offsets.items() if offset > 0]
        if not given or not self._settings.fail_on_data_loss:
            return
        # The end of all records: one of an open transaction is not lost, though read_committed waits for it.
        latest = await lookup.bounds(client, given, at=LATEST, read_committed=False)
        begun = StreamOffset(positions={tp: starts[tp] for tp in given})
        for tp, cause in plan_losses(begun, LogView(latest=latest)).items():
            raise DataLoss(lost(tp, latest[tp], starts[tp], cause))

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
