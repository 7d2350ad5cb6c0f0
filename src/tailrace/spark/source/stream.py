"""A streaming read: Spark asks again and again how far there is something, and reads up to there.

Who calls what (pyspark 4.2 and later):

    initialOffset()                a new query's start, asked for again until its first batch is done
    latestOffset(start, limit)     the end of the next batch; `start` is the end of the finished one
    partitions(start, end)         the tasks of a batch, with the same ranges whenever it is replayed
    read(partition)                in the workers
    prepareForTriggerAvailableNow  the end is settled now, whatever comes later

pyspark 4.0 and 4.1 call latestOffset() alone: the process then remembers where the last batch ended. Just
after a restart it does not know, and the first batch takes whatever there is, limits or not; what was lost
meanwhile is found when Spark names both ends.

A checkpoint of Spark's own Kafka source is taken over: batches that it names are read as it names them, and
the next one is kept as ours, even if it is empty, so that the ids of the topics are known from then on.

An idle query asks dozens of times a second, so latestOffset waits for records for up to IDLE_WAIT_S.
Constructors run many times and send no request; a reader is pickled, so it holds plain values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.data_loss import DataLoss, lost
from tailrace.spark.link import BrokerLink
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.source import lookup
from tailrace.spark.source.columns import arrow_schema
from tailrace.spark.source.group import GroupProgress
from tailrace.spark.source.offset import StreamOffset, is_kafkas, plan_batch, read_offset, write_offset
from tailrace.spark.source.settings import SourceSettings
from tailrace.spark.source.task import plan_tasks, read_task
from tailrace.spark.source.trigger import (
    MADE_ANEW,
    Limits,
    LogView,
    made_anew,
    plan_end,
    plan_losses,
    plan_restarts,
    plan_starts,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before pyspark 4.2, where Spark settles the end of such a query itself

        class SupportsTriggerAvailableNow:
            """Stands in for what is not there yet."""


IDLE_WAIT_S = 0.3
"""Short enough that stopping a query is not felt."""

Positions = Mapping[TopicPartition, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from where the query stands; made by the data source, one for a query and one per plan."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema: pa.Schema = arrow_schema(schema, decodes=settings.value is not None)
        self._group = None if settings.publish_group is None else GroupProgress(settings.publish_group)
        self._target: LogView | None = None  # of a query with trigger AvailableNow
        self._seen: LogView | None = None
        self._known: StreamOffset | None = None
        self._triggered_s: float | None = None

    # ---- what Spark calls in the driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        self._known = self._link().run(self._find_start)
        return write_offset(self._known)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next batch ends: `start` itself while there is nothing to read."""
        if start is None:
            return self._latest_without_start()
        begun = read_offset(start)
        if begun.starts is not None:
            self._publish(begun)
        ended = self._next(begun, self._limits(limit))
        if ended is None and is_kafkas(start):
            ended = self._taken_over(begun)
        return start if ended is None else write_offset(ended)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options. Spark has no two limits in one: latestOffset adds the others itself."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

        settings = self._settings
        if settings.trigger_offsets_max is not None:
            return ReadMaxRows(settings.trigger_offsets_max)
        if settings.trigger_bytes_max is not None:
            return ReadMaxBytes(settings.trigger_bytes_max)
        if settings.trigger_offsets_min is not None:
            return ReadMinRows(settings.trigger_offsets_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log when it was last looked at, for the query's progress."""
        seen = self._seen
        return None if seen is None else write_offset(StreamOffset(positions=seen.latest, ids=seen.ids))

    def prepareForTriggerAvailableNow(self) -> None:
        """Settle where the query ends."""
        self._target = self._link().run(self._look)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        self._known = read_offset(end)
        if is_kafkas(end):
            self._known = self._complete(self._known, start)
            end = write_offset(self._known)
        if self._known.starts == {}:
            start = write_offset(self._without_losses(read_offset(start), self._known))
        ranges = self._without_lost(plan_batch(start, end), self._known)
        return [InputPartition(task) for task in plan_tasks(ranges, self._settings)]

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done. Newer Sparks say so earlier, through latestOffset."""
        self._publish(read_offset(end))

    def stop(self) -> None:
        """Nothing to do: the process that holds the connections ends with the query."""

    # ---- what Spark calls in a worker

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_task(partition.value or [], self._settings, self._schema)

    # ---- the next batch

    def _next(self, begun: StreamOffset, limits: Limits) -> StreamOffset | None:
        """The end of the next batch, None if there is none; waits a little for one."""
        link = self._link()
        view = self._view(begun)
        ended = self._plan(link, begun, view, limits)
        if ended is None and self._target is None:
            if any(view.latest.get(tp, 0) > offset for tp, offset in begun.positions.items()):
                time.sleep(IDLE_WAIT_S)  # there is something, but too little: only time can help
                return None
            link.run(
                lambda client: lookup.wait_growth(
                    client, view.latest, read_committed=self._settings.read_committed, timeout_s=IDLE_WAIT_S
                )
            )
            ended = self._plan(link, begun, self._view(begun), limits)
        if ended is not None:
            self._triggered_s = time.monotonic()
        return ended

    def _view(self, begun: StreamOffset) -> LogView:
        if self._target is None:
            return self._link().run(self._look)
        # A query may start at "latest" just after its end was settled: then there is nothing for it to read.
        if any(offset > self._target.latest.get(tp, -1) for tp, offset in begun.positions.items()):
            now = self._link().run(self._look)
            ends = {
                tp: min(end, max(self._target.latest.get(tp, 0), begun.positions.get(tp, 0)))
                for tp, end in now.latest.items()
                if tp in self._target.latest or tp in begun.positions
            }
            return replace(now, latest=ends)
        return self._target

    def _plan(
        self, link: BrokerLink, begun: StreamOffset, view: LogView, limits: Limits
    ) -> StreamOffset | None:
        self._check_losses(begun, view)
        starts = plan_starts(begun, view, link.run(lambda client: self._restarts(client, begun, view)))
        sizes = None
        if limits.bytes_max is not None:
            behind = {tp: starts[tp] for tp, end in view.latest.items() if starts[tp] < end}
            sizes = link.run(lambda client: self._sizes(client, behind)) if behind else {}
        ends = plan_end(starts, view, limits=limits, is_due=self._is_due(), record_bytes=sizes)
        if ends is None:
            return None
        return StreamOffset(positions=ends, starts=starts, ids={**begun.ids, **view.ids})

    def _check_losses(self, begun: StreamOffset, view: LogView) -> Mapping[TopicPartition, str]:
        """Partitions that cannot be read on, and why; DataLoss instead if that is wanted."""
        losses = plan_losses(begun, view)
        if self._settings.fail_on_data_loss:
            for tp, cause in losses.items():
                offset = begun.positions[tp]
                raise DataLoss(lost(tp, offset, max(offset + 1, view.latest.get(tp, 0)), cause))
        return losses

    def _is_due(self) -> bool:
        """Whether a small batch has waited long enough. The first one of a run always has, as in Spark."""
        if self._triggered_s is None or self._target is not None:
            return True
        return (time.monotonic() - self._triggered_s) * 1000 >= self._settings.trigger_delay_ms_max

    def _limits(self, limit: ReadLimit | None) -> Limits:
        """Those of the options and the one that Spark passes; none, if it asks for everything."""
        if type(limit).__name__ == "ReadAllAvailable":
            return Limits()
        settings = self._settings
        return Limits(
            offsets_min=settings.trigger_offsets_min,
            offsets_max=_least(settings.trigger_offsets_max, getattr(limit, "max_rows", None)),
            bytes_max=_least(settings.trigger_bytes_max, getattr(limit, "max_bytes", None)),
        )

    def _without_losses(self, begun: StreamOffset, ended: StreamOffset) -> StreamOffset:
        """The beginning of a batch whose end was told without it: only here the two can be compared.

        A partition that is lost has no place to be read on from, and is read from its low like a new one.
        """
        losses = self._check_losses(begun, LogView(latest=ended.positions, ids=ended.ids))
        kept = {tp: offset for tp, offset in begun.positions.items() if tp not in losses}
        return replace(begun, positions=kept)

    def _without_lost(self, ranges: Sequence[OffsetRange], ended: StreamOffset) -> Sequence[OffsetRange]:
        """The ranges of a batch without topics that were created again meanwhile; DataLoss if wanted.

        A batch that was cut short is given again when its query restarts, before anything else is asked for,
        and its offsets may by then be those of other records.
        """
        if not ranges:
            return ranges
        topics = self._settings.topics
        found = self._link().run(lambda client: lookup.find_partitions(client, topics, passes_missing=True))
        anew = made_anew(ended.ids, found.ids)
        if self._settings.fail_on_data_loss:
            for each in ranges:
                if each.topic in anew:
                    raise DataLoss(lost(each.topic_partition, each.start, each.end, MADE_ANEW))
        return [each for each in ranges if each.topic not in anew]

    def _latest_without_start(self) -> dict[str, Any]:
        """For pyspark before 4.2."""
        if self._known is not None:
            return write_offset(self._next(self._known, self._limits(None)) or self._known)
        view, lows = self._link().run(self._look_low)
        return write_offset(StreamOffset(positions=view.latest, starts={}, ids=view.ids, lows=lows))

    def _publish(self, finished: StreamOffset) -> None:
        if self._group is not None:
            self._group.publish(self._link(), finished.positions)

    # ---- a checkpoint of Spark's own Kafka source

    def _taken_over(self, begun: StreamOffset) -> StreamOffset:
        """The place of a query as ours, without new and lost partitions: those are read from their start.

        The ids are those of the topics now, so they must not stand beside a place in a log that is gone.
        """
        assert self._seen is not None, "the broker was just asked"
        lost_now = plan_losses(begun, self._seen)
        kept = {tp: offset for tp, offset in begun.positions.items() if tp not in lost_now}
        return StreamOffset(positions=kept, starts=kept, ids=self._seen.ids)

    def _complete(self, ended: StreamOffset, start: dict[str, Any]) -> StreamOffset:
        """The end of a batch with what Spark's Kafka source does not keep: where new partitions begin.

        ConfigError if the batch is the query's first one and where it began cannot be told.
        """
        begun = read_offset(start)
        place = self._settings.start
        if begun.starts is None and (place.word == LATEST or LATEST in place.offsets.values()):
            raise ConfigError(
                'the checkpoint is of format("kafka"), and its first batch is not committed: where that began'
                f" is not known, since {place.option} says latest. Set startingOffsets to the offsets in the"
                ' file sources/0/0 of the checkpoint, or let the batch end with format("kafka") first'
            )
        new = [tp for tp in ended.positions if tp not in begun.positions]
        return replace(ended, lows=self._link().run(lambda client: self._earliest(client, new)))

    # ---- questions to the broker

    def _link(self) -> BrokerLink:
        return self._settings.link.link()

    async def _find_start(self, client: KafkaClient) -> StreamOffset:
        settings = self._settings
        # A topic that comes later is read from its beginning, as every partition that is new.
        found = await lookup.find_partitions(
            client, settings.topics, passes_missing=settings.waits_for_topics
        )
        offsets = await lookup.resolve(
            client, settings.start, found.partitions, read_committed=settings.read_committed
        )
        return StreamOffset(positions=offsets, ids=found.ids)

    async def _look(self, client: KafkaClient) -> LogView:
        # A topic that is gone is a loss with a better message than the lookup's.
        found = await lookup.find_partitions(client, self._settings.topics, passes_missing=True)
        latest = await lookup.bounds(
            client, found.partitions, at=LATEST, read_committed=self._settings.read_committed
        )
        self._seen = LogView(latest=latest, ids=found.ids)
        return self._seen

    async def _look_low(self, client: KafkaClient) -> tuple[LogView, dict[TopicPartition, int]]:
        view = await self._look(client)
        return view, await self._earliest(client, list(view.latest))

    async def _restarts(
        self, client: KafkaClient, begun: StreamOffset, view: LogView
    ) -> dict[TopicPartition, int]:
        return await self._earliest(client, plan_restarts(begun, view))

    async def _earliest(
        self, client: KafkaClient, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await lookup.bounds(client, partitions, at=EARLIEST, read_committed=False)

    async def _sizes(self, client: KafkaClient, positions: Positions) -> dict[TopicPartition, float]:
        return await lookup.sample_sizes(client, positions, read_committed=self._settings.read_committed)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)
