"""DataFrames into topics: what `df.write.format("tailrace")` and `writeStream` do.

Columns, as Spark's own Kafka sink has them: `value`, and where they are there `key`, `headers`, `topic` and
`partition`. `timestamp` is an addition: it becomes the record's. The option `topic` wins over the column. A
partition in the column wins over the key, and equal keys go where every Kafka client puts them.

Rows are written at least once: every task has an idempotent producer, so that only a task or a micro-batch
that Spark runs again can repeat them. With delivery=exactly-once they are there once, for readers of
committed records: tasks write in transactions, and the driver decides. Records of one key keep the order of
their rows within a task.

Modes: a DataFrame is written with mode("append"). A query has output mode append or complete, which appends
the whole result each time; Spark itself refuses update to sinks in Python, so write that from foreachBatch.

    options.py    what may be set
    columns.py    which columns there are, of which types
    routing.py    which rows go to which partition
    delivery.py   what a task does around its rows, and the driver with what the tasks did
    exactly_once.py, committing.py, decision.py
                  the same with transactions: a task's, the driver's, and the topic of their decisions
    writing.py    a task: rows to partitions, through tailrace.spark.producing
    writer.py     what Spark calls; arrow_stream.py where Spark hands micro-batches over as Arrow (4.1)
    row_batch.py  rows to Arrow, for Spark 4.0
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from tailrace.model import ConfigError
from tailrace.spark.sink.columns import plan_columns
from tailrace.spark.sink.delivery import AtLeastOnce, Delivery
from tailrace.spark.sink.options import SinkSettings, read_settings
from tailrace.spark.sink.writer import BatchWriter, RowStreamWriter
from tailrace.spark.sink.writing import Sink

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """What writes a DataFrame; ConfigError for options or columns that cannot be."""
    if overwrite:
        raise ConfigError(
            'mode "overwrite" is not possible: a topic is only ever appended to.'
            ' Use mode("append"), and delete the topic first if it is to begin anew'
        )
    return BatchWriter(_plan_sink(options, schema, run=uuid.uuid4().hex))


def stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,  # noqa: ARG001  # Spark always says
) -> DataSourceStreamWriter:
    """What writes the micro-batches of a query; ConfigError for options or columns that cannot be.

    Output mode "complete" (`overwrite`) appends the whole result each time, as Spark's Kafka sink does.
    """
    sink = _plan_sink(options, schema, run=None)
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        from tailrace.spark.sink.arrow_stream import ArrowStreamWriter

        return ArrowStreamWriter(sink)
    return RowStreamWriter(sink)


def _plan_sink(options: Mapping[str, str], schema: StructType, *, run: str | None) -> Sink:
    settings = read_settings(options)
    columns = plan_columns(schema, topic=settings.topic)
    return Sink(
        link=settings.link,
        columns=columns,
        delivery=_plan_delivery(settings, run=run),
        encryption=settings.encryption,
    )


def _plan_delivery(settings: SinkSettings, *, run: str | None) -> Delivery:
    """What was asked for; NoTransactions, before the first row, if the broker cannot do it."""
    if not settings.exactly_once:
        return AtLeastOnce(settings.producing)
    from tailrace.spark.sink.exactly_once import ExactlyOnce

    delivery = ExactlyOnce(
        settings=settings.producing,
        link=settings.link,
        run=run,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        fails_on_loss=settings.fails_on_loss,
        checkpoint=settings.checkpoint,
    )
    delivery.prepare()
    return delivery
