"""What a report counts in the rows of one partition, batch by batch, in bounded memory.

Runs in Spark's Python workers, a task for each partition of a topic, over Arrow columns: nothing is done per
row. Rows come in offset order, so a timestamp below the greatest one so far is a late one.

Keys are counted exactly up to KEYS_MAX different ones. Beyond that the rarer half is forgotten from time to
time: what is left of a frequent key is exact, or too low by at most what was forgotten of it, and the number
of different keys is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark.lake import DataFile, scan_files

KEYS_MAX = 100_000
KEYS_SHOWN = 50
HEADERS_MAX = 1_000
SIZE_BUCKETS = 33
"""Bucket 0 is no bytes at all, bucket n is from 2**(n-1) up to but without 2**n."""

_COLUMNS = ("key", "value", "offset", "timestamp", "headers")

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that a report shows, in windows of one length."""

    start_us: int
    window_us: int
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTask:
    """One partition of a topic; travels to a worker pickled."""

    root: str
    partition: int
    files: tuple[DataFile, ...]
    span: Span


@dataclass(slots=True, kw_only=True)
class Figures:
    """What was counted in one partition; travels back as JSON."""

    partition: int
    rows: int = 0
    record_bytes: int = 0
    record_bytes_max: int = 0
    null_keys: int = 0
    tombstones: int = 0
    with_headers: int = 0
    late: int = 0
    late_us_max: int = 0
    outside: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * SIZE_BUCKETS)
    window_rows: list[int] = field(default_factory=list)
    window_bytes: list[int] = field(default_factory=list)
    header_names: dict[str, int] = field(default_factory=dict)
    keys: list[tuple[bytes, int]] = field(default_factory=list)
    keys_distinct: int | None = 0
    """None if there were too many to count."""


def measure_partition(task: MeasureTask) -> Figures:
    """Everything about one partition."""
    batches = scan_files(task.root, task.files, columns=_COLUMNS)
    return measure(batches, partition=task.partition, span=task.span)


def measure(batches: Iterable[pa.RecordBatch], *, partition: int, span: Span) -> Figures:
    """The figures of rows in offset order."""
    measuring = _Measuring(partition=partition, span=span)
    for batch in batches:
        if batch.num_rows:
            measuring.add(batch)
    return measuring.finish()


class _Measuring:
    def __init__(self, *, partition: int, span: Span) -> None:
        self._figures = Figures(partition=partition)
        self._span = span
        self._newest_us: int | None = None
        self._window_rows = np.zeros(span.windows, np.int64)
        self._window_bytes = np.zeros(span.windows, np.int64)
        self._sizes = np.zeros(SIZE_BUCKETS, np.int64)
        self._keys: dict[bytes, int] = {}
        self._keys_forgotten = False

    def add(self, batch: pa.RecordBatch) -> None:
        key, value, headers = (batch.column(name) for name in ("key", "value", "headers"))
        sizes = _lengths(key) + _lengths(value) + _header_bytes(headers)
        times: Longs = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        found = self._figures
        found.rows += batch.num_rows
        found.record_bytes += int(sizes.sum())
        found.record_bytes_max = max(found.record_bytes_max, int(sizes.max()))
        found.null_keys += key.null_count
        found.tombstones += value.null_count
        self._sizes += np.bincount(_bucket(sizes), minlength=SIZE_BUCKETS)
        self._add_times(times, sizes)
        self._add_headers(headers)
        self._add_keys(key)

    def finish(self) -> Figures:
        found = self._figures
        found.sizes = self._sizes.tolist()
        found.window_rows = self._window_rows.tolist()
        found.window_bytes = self._window_bytes.tolist()
        found.keys = nlargest(KEYS_SHOWN, self._keys.items(), key=lambda item: (item[1], item[0]))
        found.keys_distinct = None if self._keys_forgotten else len(self._keys)
        return found

    def _add_times(self, times: Longs, sizes: Longs) -> None:
        newest = np.maximum.accumulate(times)
        if self._newest_us is not None:
            newest = np.maximum(newest, self._newest_us)
        self._newest_us = int(newest[-1])
        behind = newest - times
        self._figures.late += int(np.count_nonzero(behind))
        self._figures.late_us_max = max(self._figures.late_us_max, int(behind.max()))
        window = (times - self._span.start_us) // self._span.window_us
        inside = (window >= 0) & (window < self._span.windows)
        self._figures.outside += int(np.count_nonzero(~inside))
        np.add.at(self._window_rows, window[inside], 1)
        np.add.at(self._window_bytes, window[inside], sizes[inside])

    def _add_headers(self, headers: pa.ListArray) -> None:
        self._figures.with_headers += int(np.count_nonzero(_list_lengths(headers)))
        names = self._figures.header_names
        for found in _counted(headers.flatten().field("key")):
            name, count = found
            if name in names or len(names) < HEADERS_MAX:
                names[name] = names.get(name, 0) + count

    def _add_keys(self, keys: pa.Array) -> None:
        counts = self._keys
        for key, count in _counted(keys):
            counts[key] = counts.get(key, 0) + count
        if len(counts) > KEYS_MAX:
            self._keys = dict(nlargest(KEYS_MAX // 2, counts.items(), key=lambda item: item[1]))
            self._keys_forgotten = True


def _counted(values: pa.Array) -> list[tuple[Any, int]]:
    """Different values that are not null, each with how often it is there."""
    counted = pc.value_counts(values.drop_null())
    return list(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _lengths(column: pa.Array) -> Longs:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _list_lengths(headers: pa.ListArray) -> Longs:
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _header_bytes(headers: pa.ListArray) -> Longs:
    """What the headers of each row take: the length of their names and values."""
    flat = headers.flatten()
    ends = np.zeros(len(flat) + 1, np.int64)
    np.cumsum(_lengths(flat.field("key")) + _lengths(flat.field("value")), out=ends[1:])
    rows = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(_list_lengths(headers), out=rows[1:])
    return np.asarray(np.diff(ends[rows]), np.int64)


def _bucket(sizes: Longs) -> Longs:
    """The number of bits that each size takes."""
    _, exponents = np.frexp(sizes.astype(np.float64))
    return np.minimum(exponents, SIZE_BUCKETS - 1).astype(np.int64)
