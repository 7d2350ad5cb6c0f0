"""What Spark calls to write: planned in the driver, pickled, and run once per task.

Spark hands Arrow batches to the writer of a DataFrame, and since 4.1 to that of a query. Spark 4.0 hands the
rows of a query over one by one; `RowStreamWriter` makes Arrow batches of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from tailrace.spark.sink.delivery import Written
from tailrace.spark.sink.row_batch import batches_of_rows
from tailrace.spark.sink.writing import Sink


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.delivery.commit(written_among(messages), batch_id=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.delivery.abort(written_among(messages), batch_id=None)


class RowStreamWriter(DataSourceStreamWriter):
    """Writes the micro-batches of a query, row by row."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self.sink.write(batches_of_rows(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.delivery.commit(written_among(messages), batch_id=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.delivery.abort(written_among(messages), batch_id=batchId)


def written_among(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """What the tasks that ended well wrote; the others left None."""
    return [each for each in messages if isinstance(each, Written)]
