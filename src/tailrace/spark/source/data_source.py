"""The class behind `format("tailrace")`: Spark makes it from options and asks it for readers and writers.

It is made many times over, in the driver and in its workers, and pickled in between: nothing is looked up
before a reader is used. Options are checked as soon as it is known what they are for.

Before the first query Spark starts a Python only to ask for this class, and a person waits for that: so
whatever a method needs is imported there.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from tailrace.spark.source.batch import BatchReader
    from tailrace.spark.source.stream import StreamReader

NAME = "tailrace"


class TailraceDataSource(DataSource):
    """Topics of Tailrace, or of Apache Kafka, as tables and streams.

    A row is a record: key and value as bytes, topic, partition, offset, timestamp, timestampType, and headers
    with includeHeaders. With valueFormat and valueSchema it has `data` too, the value with its types.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        """The columns, where the user gave none: those of a record, and those that come of its value."""
        from tailrace.spark.source.schema import spark_schema, with_values
        from tailrace.spark.source.settings import decodes_values, includes_headers

        columns = spark_schema(headers=includes_headers(self.options))
        value, topic = decodes_values(self.options)
        return columns if value is None else with_values(columns, value, topic)

    def reader(self, schema: StructType) -> BatchReader:
        from tailrace.spark.source.batch import BatchReader
        from tailrace.spark.source.settings import batch_settings

        return BatchReader(batch_settings(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        from tailrace.spark.source.settings import stream_settings
        from tailrace.spark.source.stream import StreamReader

        return StreamReader(stream_settings(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tailrace.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tailrace.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
