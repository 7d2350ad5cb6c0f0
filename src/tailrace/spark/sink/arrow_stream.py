"""The writer of a query where Spark hands micro-batches over as Arrow: 4.1 and later.

A module of its own, because on Spark 4.0 it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tailrace.spark.sink.writer import written_among
from tailrace.spark.sink.writing import Sink


class ArrowStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.delivery.commit(written_among(messages), batch_id=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.delivery.abort(written_among(messages), batch_id=batchId)
