"""Columns of numbers as numpy's arrays and back, without a copy.

Not by `pa.array`: of numpy's arrays it asks pandas first, whose import costs every worker half a second.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]


def offsets_of(rows: pa.RecordBatch) -> Ints:
    """The offsets of rows. They have no nulls."""
    return _numbers(rows.column("offset"))


def timestamps_us(column: pa.Array) -> Ints:
    """A column of times as microseconds. It has no nulls: every record has a time."""
    return _numbers(column)


def as_column(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers of the width of `kind` as a column."""
    assert numbers.dtype.itemsize * 8 == kind.bit_width, f"{numbers.dtype} is not {kind}"
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _numbers(column: pa.Array) -> Ints:
    values = np.frombuffer(column.buffers()[1], dtype=np.int64)
    return values[column.offset : column.offset + len(column)]
