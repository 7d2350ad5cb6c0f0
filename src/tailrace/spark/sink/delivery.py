"""What a delivery promises: what a task does around its rows, and the driver with what the tasks did.

    task    begin -> rows are sent -> end -> Written goes to the driver
    driver  commit, when every task of the job ended well; abort otherwise

`AtLeastOnce` has a producer per task attempt, and everything counts as soon as it has arrived: there is
nothing left for the driver to do. A promise of more puts its work between these four.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.datasource import WriterCommitMessage

from tailrace.model import TopicPartition
from tailrace.spark.link import BrokerLink
from tailrace.spark.producing import BatchProducer
from tailrace.spark.sink.options import ProducingSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]
    """Behind the last row of each partition."""


class Delivery(Protocol):
    """A promise about rows; picklable, because it goes to the tasks."""

    @property
    def settings(self) -> ProducingSettings: ...

    def begin(self, link: BrokerLink) -> BatchProducer:
        """In a task, before its rows."""
        ...

    def end(self, producer: BatchProducer, rows: Mapping[TopicPartition, int]) -> Written:
        """In a task, after its rows."""
        ...

    def commit(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        """In the driver: every task ended well. `batch_id` is the micro-batch of a query."""
        ...

    def abort(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        """In the driver: some task failed for good; these did not."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    """Every row arrives; those of a task or micro-batch that is run again may be there twice."""

    settings: ProducingSettings

    def begin(self, link: BrokerLink) -> BatchProducer:
        return BatchProducer(
            link,
            compression=self.settings.compression,
            batch_bytes_max=self.settings.batch_bytes_max,
            request_bytes_max=self.settings.request_bytes_max,
            in_flight_bytes_max=self.settings.in_flight_bytes_max,
            delivery_timeout_s=self.settings.delivery_timeout_s,
        )

    def end(self, producer: BatchProducer, rows: Mapping[TopicPartition, int]) -> Written:
        return Written(rows=dict(rows), next_offsets=producer.flush())

    def commit(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        total = _total(written)
        _log.info(
            "rows written: batch=%s rows=%d partitions=%s",
            "-" if batch_id is None else batch_id,
            total.total(),
            {str(partition): count for partition, count in sorted(total.items())},
        )

    def abort(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        _log.warning(
            "write failed, what arrived stays: batch=%s rows=%d tasks=%d",
            "-" if batch_id is None else batch_id,
            _total(written).total(),
            len(written),
        )


def _total(written: Sequence[Written]) -> Counter[TopicPartition]:
    total: Counter[TopicPartition] = Counter()
    for each in written:
        total.update(each.rows)
    return total
