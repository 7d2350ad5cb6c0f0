"""The columns of a data file: those of a record without its topic, which its folder tells.

Each column carries a number (Parquet's field_id). Iceberg finds columns by it; everybody else ignores it. The
numbers are those that an Iceberg table made of these columns gets, see iceberg.py.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.spark.codec import KAFKA_SCHEMA, TIMESTAMP_TYPE

ROW_SCHEMA = pa.schema([field for field in KAFKA_SCHEMA if field.name not in ("topic", "partition")])
"""What `write_files` takes of a piece, so what to ask `read_range` for: the rest is the same in all rows."""


def _field(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


_HEADER_TYPE = pa.struct([_field("key", pa.string(), 11), _field("value", pa.binary(), 12)])

FILE_SCHEMA = pa.schema(
    [
        _field("key", pa.binary(), 1),
        _field("value", pa.binary(), 2),
        _field("partition", pa.int32(), 3),
        _field("offset", pa.int64(), 4),
        _field("timestamp", TIMESTAMP_TYPE, 5),
        _field("timestampType", pa.int32(), 6),
        _field("headers", pa.list_(_field("element", _HEADER_TYPE, 10)), 7),
    ]
)

FOLDER_FIELDS = (_field("topic", pa.string(), 8), _field("dt", pa.date32(), 9))
"""What the folders tell. Only files of Iceberg tables repeat it, see `file_schema`."""


def file_schema(format: str | None) -> pa.Schema:
    """The columns of files in a lake of this format.

    Iceberg lets a file leave out columns that its partition tells, but pyiceberg then finds no row at all
    when such a column is filtered by and not selected. The others want the opposite: pyarrow and pandas
    refuse a column that is in a file and in a folder name with two types.
    """
    return pa.schema([*FILE_SCHEMA, *FOLDER_FIELDS]) if format == "iceberg" else FILE_SCHEMA
