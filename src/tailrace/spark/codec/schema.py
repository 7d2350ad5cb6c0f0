"""The columns of a Kafka record, named and typed as Spark's own Kafka source names and types them.

A schema given by a user may leave columns out and order them differently. It may not change a type: Spark
casts better than we do, and says so in the query plan.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.model import ConfigError

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)

KAFKA_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""Everything there is. Without headers asked for, the last column is left out."""


def plan_schema(schema: pa.Schema, *, headers: bool) -> pa.Schema:
    """The columns to make: those of `schema`, without the headers where nobody asked for them."""
    fields = [field for field in schema if headers or field.name != "headers"]
    for field in fields:
        if KAFKA_SCHEMA.get_field_index(field.name) < 0:
            names = ", ".join(KAFKA_SCHEMA.names)
            raise ConfigError(f"a record has no column {field.name!r}. Choose among {names}")
        wanted = KAFKA_SCHEMA.field(field.name).type
        if not _same_type(field.type, wanted):
            raise ConfigError(
                f"column {field.name!r} is {wanted}, not {field.type}. Cast it in the query instead"
            )
    return pa.schema(fields)


def _same_type(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Names and nullability inside a list do not count: Spark calls its items `element`, Arrow `item`."""
    if not pa.types.is_list(given) or not pa.types.is_list(wanted):
        return bool(given.equals(wanted))
    given, wanted = given.value_type, wanted.value_type
    if not pa.types.is_struct(given) or given.num_fields != wanted.num_fields:
        return False
    return all(
        given.field(i).name == wanted.field(i).name and given.field(i).type.equals(wanted.field(i).type)
        for i in range(wanted.num_fields)
    )
