"""Kafka's record batch, format 2: the unit that is produced, stored, replicated and fetched.

    byte  0   base offset           int64    patched by the broker        \\
          8   batch length          int32    bytes after this field        |  not covered by the CRC
         12   leader epoch          int32    patched by the broker         |
         16   magic                 int8     2                             |
         17   CRC32C                uint32   of everything from byte 21   /
         21   attributes            int16    bits 0-2 codec, 3 append time, 4 transactional, 5 control,
                                             6 delete horizon (KIP-534)
         23   last offset delta     int32    last offset - base offset
         27   base timestamp        int64    ms; of the first record, or the delete horizon
         35   max timestamp         int64    ms; with bit 3 it is every record's timestamp
         43   producer id           int64    -1: not idempotent            \\
         51   producer epoch        int16                                  |  KIP-98
         53   base sequence         int32    of the first record          /
         57   record count          int32
         61   records, compressed as one piece by the codec (their layout: _pure.py)

All numbers are big-endian. `read_batch` gives a view of a batch that lies in a buffer, `validate_batch`
checks what a producer sent, `build_batch` makes one, `Batch.records` decodes lazily. `write_marker` and
`read_marker` are for the control batches that end transactions. `Walk` tells which batches of a buffer are
visible: everything that reads batches for their records uses it. Everything that is wrong with bytes is a
`BatchError`. Nothing here waits, and only `records` and `read_marker` look inside a payload.

The functions for varints, decoding and encoding exist twice, in Cython and in Python; `ACCELERATED` says
which are in use, and TAILRACE_PURE=1 chooses the Python ones.
"""

from tailrace.records.batch import (
    BATCH_BYTES_MAX,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_BIT,
    ENCRYPTED_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    UNCHECKED_BYTES,
    Batch,
    iter_batches,
    max_timestamp_at,
    read_batch,
    validate_batch,
)
from tailrace.records.builder import BatchBuilder, BatchFields, build_batch, rebuild_batch
from tailrace.records.compression import Compression, compress, decompress
from tailrace.records.control import Marker, read_marker, write_marker
from tailrace.records.crc import crc32c
from tailrace.records.error import BatchError, UndecodableBatch
from tailrace.records.record import BytesLike, NewRecord, Record
from tailrace.records.twin import ACCELERATED, check_spans
from tailrace.records.walk import NO_END, BadSpan, OnDamage, Visible, Walk, pass_over, refuse, span_of, stop

__all__ = [
    "ACCELERATED",
    "BATCH_BYTES_MAX",
    "COMPRESSION_MASK",
    "CONTROL_BIT",
    "DECOMPRESSED_BYTES_MAX",
    "DELETE_HORIZON_BIT",
    "ENCRYPTED_BIT",
    "HEADER_BYTES",
    "LOG_APPEND_TIME_BIT",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "NO_END",
    "TRANSACTIONAL_BIT",
    "UNCHECKED_BYTES",
    "BadSpan",
    "Batch",
    "BatchBuilder",
    "BatchError",
    "BatchFields",
    "BytesLike",
    "Compression",
    "Marker",
    "NewRecord",
    "OnDamage",
    "Record",
    "UndecodableBatch",
    "Visible",
    "Walk",
    "build_batch",
    "check_spans",
    "compress",
    "crc32c",
    "decompress",
    "iter_batches",
    "max_timestamp_at",
    "pass_over",
    "read_batch",
    "read_marker",
    "rebuild_batch",
    "refuse",
    "span_of",
    "stop",
    "validate_batch",
    "write_marker",
]
