"""A task's rows with their values decoded: `data` and `dataError` beside what was read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.spark.source.value_option import DATA, DATA_ERROR, ValueSettings
from tailrace.spark.value.decoding import Decoded, decode_each, decode_framed, decode_json

Decode = Callable[[pa.Array], Decoded]


class BadValue(TailraceError):
    """A value that does not fit the type that was asked for."""


class ValueReading:
    """What a task reads and makes of it, for one schema."""

    def __init__(self, schema: pa.Schema, value: ValueSettings) -> None:
        self._schema = schema
        self._fails = value.fails
        self._decode = plan_decode(schema, value)
        own = [field for field in schema if field.name not in (DATA, DATA_ERROR)]
        names = {field.name for field in own}
        self.read_as = pa.schema([*own, *(field for field in _NEEDED if field.name not in names)])
        """What has to be read of the records."""

    def finish(self, rows: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
        """The rows as the schema has them; BadValue for the first that does not fit, if that is wanted."""
        value = rows.column("value")
        decoded = self._decode(value if pa.types.is_binary(value.type) else value.view(pa.binary()))
        if decoded.bad and self._fails:
            first = min(decoded.bad)
            raise BadValue(
                f"{tp} at offset {rows.column('offset')[first]}: {decoded.bad[first]}. Set badRows=null to"
                " have null in data and the reason in dataError, or declare other types in valueSchema"
            )
        columns = []
        for field in self._schema:
            if field.name == DATA:
                columns.append(decoded.data)
            elif field.name == DATA_ERROR:
                columns.append(_reasons(decoded))
            else:
                columns.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


_NEEDED = (pa.field("value", pa.binary()), pa.field("offset", pa.int64()))


def plan_decode(schema: pa.Schema, value: ValueSettings) -> Decode:
    """What decodes the values for the columns of a schema."""
    at = schema.get_field_index(DATA)
    if at < 0:
        raise ConfigError(f"column {DATA_ERROR} comes with {DATA}: add it to the schema, or leave both out")
    kind = schema.field(at).type
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise ConfigError(f"column {DATA} is {kind}, and values are decoded as structs only")
    if value.format == "avro":
        from tailrace.spark.value.avro import avro_reader

        definition = value.schema.definition if value.schema is not None else ""
        read = avro_reader(kind, definition=definition, registry=value.registry)
        return lambda values: decode_each(values, kind, read)
    if value.format == "protobuf":
        from tailrace.spark.value.protobuf import protobuf_reader

        assert value.schema is not None, "the options were checked"
        parse = protobuf_reader(definition=value.schema.definition, registry=value.registry)
        return lambda values: decode_each(values, kind, parse)
    if value.registry:
        return lambda values: decode_framed(values, lambda bodies: decode_json(bodies, kind))
    return lambda values: decode_json(values, kind)


def _reasons(decoded: Decoded) -> pa.Array:
    if not decoded.bad:
        return pa.nulls(len(decoded.data), pa.string())
    return pa.array([decoded.bad.get(at) for at in range(len(decoded.data))], pa.string())
