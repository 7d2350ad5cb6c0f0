"""Rows to Arrow batches: for Spark 4.0, which hands the rows of a query over one by one.

Types were checked before (columns.py), so a column is known by its name. Times in rows are those of Python:
without a zone, in the local time of the worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from tailrace.spark.codec import HEADERS_TYPE, TIMESTAMP_TYPE

ROWS_MAX = 10_000
"""Of one batch, as many as Spark puts into its own by default."""


def batches_of_rows(rows: Iterable[Row], *, rows_max: int = ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the columns that a sink looks at, each of so many rows at most."""
    waiting = iter(rows)
    while taken := list(islice(waiting, rows_max)):
        names = [name for name in taken[0].__fields__ if name in _ARRAYS]
        yield pa.record_batch([_ARRAYS[name]([row[name] for row in taken]) for name in names], names=names)


def _bytes(values: list[Any]) -> pa.Array:
    return pa.array([each.encode() if isinstance(each, str) else each for each in values], pa.binary())


def _times(values: list[datetime | None]) -> pa.Array:
    return pa.array([None if each is None else each.astimezone(UTC) for each in values], TIMESTAMP_TYPE)


def _headers(values: list[Any]) -> pa.Array:
    listed = [
        None if each is None else [None if header is None else _header(header) for header in each]
        for each in values
    ]
    return pa.array(listed, HEADERS_TYPE)


def _header(header: Row) -> dict[str, Any]:
    value = header["value"]
    return {"key": header["key"], "value": value.encode() if isinstance(value, str) else value}


_ARRAYS = {
    "key": _bytes,
    "value": _bytes,
    "headers": _headers,
    "topic": lambda values: pa.array(values, pa.string()),
    "partition": lambda values: pa.array(values, pa.int32()),
    "timestamp": _times,
}
