"""What a delivery promises: what a task does around its rows, and the driver with what the tasks did.

    task    begin -> rows are sent -> end, or fail -> Written goes to the driver
    driver  commit, when every task of the job ended well; abort otherwise

`AtLeastOnce` has a producer per task attempt, and everything counts as soon as it has arrived: there is
nothing left for the driver to do. `ExactlyOnce` (exactly_once.py) leaves a transaction open in every task,
and its driver decides which of them make up the batch.
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
from tailrace.spark.sink.committing import Origin
from tailrace.spark.sink.options import ProducingSettings
from tailrace.spark.transacting import Attempt, Opened

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]
    """Behind the last row of each partition."""
    origin: Origin | None = None
    """Whose rows, where the driver decides about them."""
    opened: Opened | None = None
    """The transaction that holds them."""
    is_decided: bool = False
    """Whether the task wrote nothing because its batch had been decided."""


class Writing(Protocol):
    """One attempt at a task."""

    @property
    def producer(self) -> BatchProducer | None:
        """What takes the rows; None where they are delivered already."""

    def end(self, rows: Mapping[TopicPartition, int]) -> Written:
        """After the last row: returns when all have arrived."""

    def fail(self) -> None:
        """The attempt has failed, or was stopped."""


class Delivery(Protocol):
    """A promise about rows; picklable, because it goes to the tasks."""

    @property
    def settings(self) -> ProducingSettings: ...

    def begin(self, link: BrokerLink) -> Writing:
        """In a task, before its rows."""
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

    def begin(self, link: BrokerLink) -> Writing:
        return _Arriving(new_producer(link, self.settings))

    def commit(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        total = total_rows(written)
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
            total_rows(written).total(),
            len(written),
        )


@dataclass(frozen=True, slots=True)
class _Arriving:
    """An attempt whose rows count as they arrive."""

    producer: BatchProducer

    def end(self, rows: Mapping[TopicPartition, int]) -> Written:
        return Written(rows=dict(rows), next_offsets=self.producer.flush())

    def fail(self) -> None:
        """What has arrived stays."""


def new_producer(
    link: BrokerLink, settings: ProducingSettings, *, attempt: Attempt | None = None
) -> BatchProducer:
    """A producer for the rows of a task."""
    return BatchProducer(
        link,
        compression=settings.compression,
        batch_bytes_max=settings.batch_bytes_max,
        request_bytes_max=settings.request_bytes_max,
        in_flight_bytes_max=settings.in_flight_bytes_max,
        delivery_timeout_s=settings.delivery_timeout_s,
        attempt=attempt,
    )


def total_rows(written: Sequence[Written]) -> Counter[TopicPartition]:
    """Rows by partition, over all tasks."""
    total: Counter[TopicPartition] = Counter()
    for each in written:
        total.update(each.rows)
    return total
