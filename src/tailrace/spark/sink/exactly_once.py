"""Exactly once: every attempt of a task has a transaction, and the driver decides which make up the batch.

A task reads whether its batch is decided, and then writes nothing. Else it writes in a transaction of its
own, and leaves that open. committing.py is what the driver does with it; docs/adr/0022 says why.

Spark tells a task its query, its run and its batch by local properties. A DataFrame has no query, so its run
is named when it is planned. The driver is told nothing, and learns it from what the tasks return; where none
of them does (`abort` of a query that was stopped), from the last batch that this process has committed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailrace.client.kafka import KafkaClient
from tailrace.model import TailraceError, TopicPartition
from tailrace.spark.link import BrokerLink
from tailrace.spark.options import LinkSettings
from tailrace.spark.producing import BatchProducer
from tailrace.spark.sink.committing import Committer, Origin
from tailrace.spark.sink.decision import Winner, ensure_topic, log_of
from tailrace.spark.sink.delivery import Written, new_producer, total_rows
from tailrace.spark.sink.options import ProducingSettings
from tailrace.spark.transacting import Attempt, abort_opened, check_transactions

if TYPE_CHECKING:
    from pyspark import TaskContext

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"  # of a query, Spark sets it to the id of its run
_BATCH_ID = "streaming.sql.batchId"
_RUN = "run"  # in the transactional ids of a DataFrame, whose query is its run
_FAIL_S = 5.0  # what an attempt that failed takes to abort its transaction; the driver does it otherwise

_Work = Callable[[Committer], Awaitable[None]]

_committed: dict[tuple[int, str], Origin] = {}
"""The newest batch that this process committed for a checkpoint, by process and checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """Every row is there once for readers of committed records, whatever is run again or killed."""

    settings: ProducingSettings
    link: LinkSettings
    run: str | None  # of a DataFrame; None for a query
    transaction_timeout_ms: int
    fails_on_loss: bool = True
    checkpoint: str | None = None

    def prepare(self) -> None:
        """In the driver, before any task: NoTransactions, or ConfigError, if it cannot be done."""
        link = self.link.link()

        async def check(client: KafkaClient) -> None:
            await check_transactions(client)
            await ensure_topic(client, log_of(link))

        link.run(check)

    # ---- in a task

    def begin(self, link: BrokerLink) -> AttemptWriting:
        origin, name = self._place()
        if _is_decided(link, origin):
            return AttemptWriting(link=link, origin=origin)
        attempt = Attempt(name, timeout_ms=self.transaction_timeout_ms)
        producer = new_producer(link, self.settings, attempt=attempt)
        return AttemptWriting(link=link, origin=origin, producer=producer, attempt=attempt)

    def _place(self) -> tuple[Origin, str]:
        """Whose rows this task has, and the transactional id of this attempt."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "tasks run in Spark's workers"
        if self.run is not None:
            origin = Origin(query=self.run, run=_RUN, batch=0, is_run=True)
        else:
            origin = Origin(
                query=_property(context, _QUERY_ID),
                run=_property(context, _RUN_ID),
                batch=int(_property(context, _BATCH_ID)),
                is_run=False,
            )
        return origin, f"{origin.batch_prefix}{context.partitionId()}-{context.attemptNumber()}"

    # ---- in the driver

    def commit(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        origin = self._origin(written, batch_id)
        winners = [
            Winner(each.opened, sum(each.rows.values())) for each in written if each.opened is not None
        ]
        if origin is not None and (winners or any(each.is_decided for each in written)):
            self._run(origin, lambda committer: committer.commit(winners))
        _log.info(
            "rows committed: batch=%s rows=%d transactions=%d",
            "-" if batch_id is None else batch_id,
            total_rows(written).total(),
            len(winners),
        )

    def abort(self, written: Sequence[Written], *, batch_id: int | None) -> None:
        origin = self._origin(written, batch_id)
        if origin is None:
            _log.warning(
                "write failed: batch=%s. Transactions of its tasks are open until they time out, or the"
                " query is started again. To see them: tailrace txn list --state Ongoing",
                batch_id,
            )
            return
        opened = [each.opened for each in written if each.opened is not None]
        try:
            self._run(origin, lambda committer: committer.give_up(opened))
        except TailraceError as error:  # what made the write fail is what Spark reports
            _log.error("write failed, and its transactions may be open still: batch=%s %s", batch_id, error)
        else:
            _log.warning("write failed, and was aborted: batch=%s", "-" if batch_id is None else batch_id)

    def _origin(self, written: Sequence[Written], batch_id: int | None) -> Origin | None:
        """Whose rows; None if nothing tells it."""
        if self.run is not None:
            return Origin(query=self.run, run=_RUN, batch=0, is_run=True)
        found = next((each.origin for each in written if each.origin is not None), None)
        key = os.getpid(), self.checkpoint or ""
        if found is None:
            found = _committed.get(key) if self.checkpoint else None
            return None if found is None or batch_id is None else replace(found, batch=batch_id)
        _committed[key] = found
        return found

    def _run(self, origin: Origin, work: _Work) -> None:
        link = self.link.link()

        async def commit(client: KafkaClient) -> None:
            log = log_of(link)
            await ensure_topic(client, log)
            await work(Committer(client, log, origin, fails_on_loss=self.fails_on_loss))

        link.run(commit)


@dataclass(slots=True, kw_only=True)
class AttemptWriting:
    """One attempt at a task; without a producer where its batch is decided."""

    link: BrokerLink
    origin: Origin
    producer: BatchProducer | None = None
    attempt: Attempt | None = None

    def end(self, rows: Mapping[TopicPartition, int]) -> Written:
        if self.producer is None or self.attempt is None:
            return Written(rows={}, next_offsets={}, origin=self.origin, is_decided=True)
        next_offsets = self.producer.flush()
        if not self.attempt.has_joined:
            return Written(rows={}, next_offsets={}, origin=self.origin)
        return Written(
            rows=dict(rows), next_offsets=next_offsets, origin=self.origin, opened=self.attempt.opened
        )

    def fail(self) -> None:
        """Abort what the attempt wrote. Where that fails, the driver of this batch or the next does it."""
        if self.attempt is None or self.attempt.opened is None or not self.attempt.has_joined:
            return
        opened = self.attempt.opened

        async def abort(client: KafkaClient) -> None:
            async with asyncio.timeout(_FAIL_S):
                await abort_opened(client, opened)

        try:
            self.link.run(abort)
        except (TailraceError, TimeoutError) as error:
            _log.warning("transaction is left to the driver: id=%s %s", opened.transactional_id, error)


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise TailraceError(
            f"Spark does not say {name} to its tasks, which delivery=exactly-once needs."
            " Use delivery=at-least-once, or write from foreachBatch"
        )
    return str(value)


def _is_decided(link: BrokerLink, origin: Origin) -> bool:
    log = log_of(link)

    async def read(client: KafkaClient) -> bool:
        await log.read_now(client)
        return log.is_decided(origin.query, origin.batch)

    return link.run(read)
