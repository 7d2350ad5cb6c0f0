"""Where rows go: Kafka's default partitioner over a column of keys.

A key goes where murmur2 of it says, so that equal keys share a partition whichever client wrote them. Rows
without a key stick together, all those of one call in one partition, and the caller takes the next one for
the next call: full batches, and an even spread over time (KIP-480).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.spark.codec.rows import binary_column
from tailrace.spark.codec.twin import hash_keys


def partition_rows(keys: pa.Array, partitions: int, *, turn: int = 0) -> npt.NDArray[np.int32]:
    """The partition of every row, by its key; those without one go to `turn` modulo `partitions`."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    column = binary_column(keys, "key")
    positive = (hash_keys(column) & np.uint32(0x7FFFFFFF)).astype(np.int64)
    chosen = (positive % partitions).astype(np.int32)
    if column.is_null is not None:
        chosen[column.is_null] = turn % partitions
    return chosen
