"""Transaction markers: the control batches that end a transaction in a partition (KIP-98).

A marker is a batch of one record with the bits *transactional* and *control*. It carries the id and the epoch
of the producer and no sequence:

    key     | version i16 (0) | type i16: 0 abort, 1 commit |
    value   | version i16 (0) | coordinator epoch i32 |

Only the broker writes markers. Readers do not show them, and what follows the known fields is not read: a
later version may add fields.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tailrace.records.batch import Batch, read_batch
from tailrace.records.builder import build_batch
from tailrace.records.error import BatchError

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_VERSION = 0


class Marker(NamedTuple):
    """What a marker says of the transaction that it ends."""

    commit: bool
    coordinator_epoch: int


def write_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> Batch:
    """The marker that ends the open transaction of a producer, ready to be appended."""
    key = _KEY.pack(_VERSION, _COMMIT if commit else _ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    data = build_batch(
        [(timestamp_ms, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return read_batch(data)


def read_marker(batch: Batch) -> Marker:
    """What the marker says; BatchError if the batch is no marker of a transaction."""
    if not (batch.is_control and batch.is_transactional):
        raise BatchError(f"the batch at offset {batch.base_offset} is no transaction marker")
    for record in batch.records():
        return _read_record(batch, record.key, record.value)
    raise BatchError(f"the marker at offset {batch.base_offset} has no record")


def _read_record(batch: Batch, key: bytes | None, value: bytes | None) -> Marker:
    try:
        version, kind = _KEY.unpack_from(key or b"")
        value_version, coordinator_epoch = _VALUE.unpack_from(value or b"")
    except struct.error:
        raise BatchError(f"the marker at offset {batch.base_offset} is cut short") from None
    if version < 0 or value_version < 0 or kind not in (_ABORT, _COMMIT):
        raise BatchError(
            f"the control record at offset {batch.base_offset} has type {kind}, version {version}"
        )
    return Marker(kind == _COMMIT, coordinator_epoch)
