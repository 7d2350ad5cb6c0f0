"""Ranges as Spark's tasks, and a task's rows as Arrow batches in the worker.

A topic-partition is a task, as in Spark's Kafka source, unless `minPartitions` or `maxRecordsPerPartition`
asks for more: then the largest are cut. Where many partitions have little to read they share tasks, since a
task costs tens of milliseconds however little it reads; two for each core remain, unless a task would have
hardly anything to do.

The process that plans has no session to ask for the cores of the cluster: pipelines tell them by the option
`parallelism`. Without it this machine's cores count, and tasks are smaller, because a cluster may have more.

A schema given by the user chooses columns and their order. Key and value may be STRING in it: the bytes are
passed on as they are, as a CAST does it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.model import ConfigError
from tailrace.spark.admission import plan_ranges, split_range
from tailrace.spark.codec.schema import plan_schema
from tailrace.spark.encryption import Decrypting
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.source.settings import SourceSettings
from tailrace.spark.source.value_option import DATA, DATA_ERROR

TASK_OFFSETS_MIN = 100_000
"""Partitions with less than this to read may share a task, where the cores are known."""
UNTOLD_OFFSETS_MIN = 25_000
"""The same, where they are not."""
SMALL_OFFSETS = 2_000
"""What a task has to read at least before another one for it pays."""
ROWS_MAX = 64 * 1024
"""Of one Arrow batch."""

VALUE_COLUMNS = frozenset({DATA, DATA_ERROR})
_AS_TEXT = ("key", "value")


def plan_tasks(ranges: Sequence[OffsetRange], settings: SourceSettings) -> list[list[OffsetRange]]:
    """Which task reads what."""
    wanted = [each for each in ranges if each.count]
    if (most := settings.partition_records_max) is not None:
        wanted = [piece for each in wanted for piece in split_range(each, -(-each.count // most))]
    if settings.partitions_min is not None:
        return plan_ranges(wanted, parts=max(settings.partitions_min, len(wanted)))
    if settings.partition_records_max is not None:
        return [[each] for each in wanted]
    return plan_ranges(wanted, parts=_count_tasks(wanted, settings.parallelism), splits=False)


def _count_tasks(ranges: Sequence[OffsetRange], parallelism: int | None) -> int:
    """How many tasks share the ranges."""
    total = sum(each.count for each in ranges)
    enough = -(-total // (UNTOLD_OFFSETS_MIN if parallelism is None else TASK_OFFSETS_MIN))
    cores = parallelism or os.cpu_count() or 1
    return max(enough, min(2 * cores, -(-total // SMALL_OFFSETS)))


def read_task(
    ranges: Sequence[OffsetRange], settings: SourceSettings, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in batches that have exactly the schema."""
    if settings.value is not None and not VALUE_COLUMNS.isdisjoint(schema.names):
        from tailrace.spark.source.value_reading import ValueReading

        reading = ValueReading(schema, settings.value)
        for wanted, rows in _read_rows(ranges, settings, reading.read_as):
            yield reading.finish(rows, wanted.topic_partition)
        return
    for _, rows in _read_rows(ranges, settings, schema):
        yield rows


def _read_rows(
    ranges: Sequence[OffsetRange], settings: SourceSettings, schema: pa.Schema
) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
    """The columns of records, with the range that each batch is of."""
    from tailrace.spark.reading import read_range  # workers alone decode records

    read_as = binary_schema(schema)
    decrypting = None if settings.encryption is None else Decrypting(read_as, settings.encryption)
    fetched_as = read_as if decrypting is None else decrypting.read_as
    link = settings.link.link()
    for wanted in ranges:
        pieces = read_range(
            link,
            wanted,
            headers="headers" in fetched_as.names,
            schema=fetched_as,
            read_committed=settings.read_committed,
            fail_on_data_loss=settings.fail_on_data_loss,
            fetch_bytes=settings.fetch_bytes,
        )
        for piece in pieces:
            rows = piece.rows
            if decrypting is not None:
                rows = decrypting.open(rows, wanted.topic, wanted.partition)
            rows = rows if read_as is schema else _as_text(rows, schema)
            for first in range(0, rows.num_rows, ROWS_MAX):
                yield wanted, rows.slice(first, ROWS_MAX)


def check_columns(schema: pa.Schema, *, decodes: bool = False) -> pa.Schema:
    """The schema, if records can be read as such; ConfigError if not. `decodes` allows columns of values."""
    if len(set(schema.names)) != len(schema.names):
        raise ConfigError(f"the schema has a column twice: {', '.join(schema.names)}. Leave one out")
    plain = pa.schema([field for field in schema if not decodes or field.name not in VALUE_COLUMNS])
    plan_schema(binary_schema(plain), headers=True)
    return schema


def binary_schema(schema: pa.Schema) -> pa.Schema:
    """What is decoded for a schema that wants keys or values as text; itself if it does not."""
    fields = [
        pa.field(field.name, pa.binary(), nullable=field.nullable)
        if field.name in _AS_TEXT and pa.types.is_string(field.type)
        else field
        for field in schema
    ]
    return schema if all(new is old for new, old in zip(fields, schema, strict=True)) else pa.schema(fields)


def _as_text(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Binary columns seen as text, without a copy and without a check, as Spark's CAST does it."""
    columns = [
        column if column.type.equals(field.type) else column.view(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
