"""Records to Arrow and Arrow to records, whole fetches at a time and never an object per record.

`decode` turns the bytes of a fetch into the columns of Spark's Kafka source. `decode_sound` does the same and
sets aside what is damaged, `decode_pieces` bounds the memory. `encode` turns columns into record batches
ready to be produced. `partition_rows` says where rows go, as Kafka's default partitioner does.

    schema.py    the columns, by name and type
    columns.py   the Arrow buffers, and the shapes that both twins fill and read
    decoding.py  fetch to rows; records.Walk tells which batches have rows to show
    rows.py      the columns to be written, whatever their types; encoding.py makes batches of them
    partition.py keys to partitions

The functions that touch every row exist twice: `_compiled.pyx` in Cython, `_pure.py` with numpy and Arrow's
own kernels. `ACCELERATED` says which are in use, and TAILRACE_PURE=1 chooses the pure ones.

Names are imported when they are first used: Spark starts processes that need the schema alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.records import BadSpan
    from tailrace.spark.codec.decoding import Piece, Sound, decode, decode_pieces, decode_sound
    from tailrace.spark.codec.encoding import encode
    from tailrace.spark.codec.partition import partition_rows
    from tailrace.spark.codec.schema import HEADERS_TYPE, KAFKA_SCHEMA, TIMESTAMP_TYPE
    from tailrace.spark.codec.twin import ACCELERATED

_HOMES = {
    "ACCELERATED": "tailrace.spark.codec.twin",
    "HEADERS_TYPE": "tailrace.spark.codec.schema",
    "KAFKA_SCHEMA": "tailrace.spark.codec.schema",
    "TIMESTAMP_TYPE": "tailrace.spark.codec.schema",
    "BadSpan": "tailrace.records",
    "Piece": "tailrace.spark.codec.decoding",
    "Sound": "tailrace.spark.codec.decoding",
    "decode": "tailrace.spark.codec.decoding",
    "decode_pieces": "tailrace.spark.codec.decoding",
    "decode_sound": "tailrace.spark.codec.decoding",
    "encode": "tailrace.spark.codec.encoding",
    "partition_rows": "tailrace.spark.codec.partition",
}

__all__ = [
    "ACCELERATED",
    "HEADERS_TYPE",
    "KAFKA_SCHEMA",
    "TIMESTAMP_TYPE",
    "BadSpan",
    "Piece",
    "Sound",
    "decode",
    "decode_pieces",
    "decode_sound",
    "encode",
    "partition_rows",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
