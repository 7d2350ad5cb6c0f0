"""The options that have values decoded, and the columns that come of it.

    valueFormat=json, valueSchema="order STRING, total DECIMAL(12,2)"

adds the column `data`, a struct of these types, to those of a record. badRows says what becomes of a value
that does not fit: `fail`, the default, fails the read and names the record; `null` makes `data` null there
and adds the column `dataError`, which says why and is null elsewhere. A value that is null fits.

A schema given by the user may have these columns in any place, and leave them out: then nothing is decoded.
The type of `data` in it takes the place of valueSchema.

    valueFormat=avro, valueSchema=orders.avsc               values written with this schema
    valueFormat=avro, schemaRegistry=http://registry:8081   values that begin with the id of their schema

    valueFormat=protobuf, valueSchema=orders.desc#Order     values of this message; with a registry, too

With a registry and without valueSchema the columns are those of the newest schema of the topic, and all may
be null: values are taken as they were written. With both, values are resolved to the schema by Avro's rules.
schemaRegistry with valueFormat=json means JSON with the id in front.

Nothing heavy is imported: Spark starts a Python that asks for the columns and for no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.model import ConfigError
from tailrace.spark.options import Options
from tailrace.spark.value.registry import check_address
from tailrace.spark.value.schema import ValueSchema, read_schema

DATA, DATA_ERROR = "data", "dataError"
OPTIONS = ("valueFormat", "valueSchema", "schemaRegistry", "badRows")
_FORMATS = {"json": "json", "avro": "avro", "protobuf": "protobuf"}
_BAD_ROWS = {"fail": True, "null": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSettings:
    """How values are decoded. Picklable: it goes to the workers."""

    schema: ValueSchema | None
    """None where the user's schema has to say it."""
    registry: str = ""
    format: str = "json"
    fails: bool


def value_settings(options: Options) -> ValueSettings | None:
    """What the options say of values; None if they are not to be decoded."""
    if "valueFormat" not in options:
        for name in OPTIONS:
            if name in options:
                raise ConfigError(
                    f"option {name} needs valueFormat: set that to one of {', '.join(_FORMATS)}"
                )
        return None
    form = options.choice("valueFormat", "", _FORMATS)
    registry = options.text("schemaRegistry") or ""
    schema = _schema(options, registry)
    if schema is not None and schema.is_resolved and schema.format != form:
        raise ConfigError(f"option valueFormat={form!r} does not go with a valueSchema of {schema.format}")
    if schema is None and form == "avro":
        raise ConfigError("option valueFormat='avro' needs valueSchema, an Avro schema, or schemaRegistry")
    if form == "protobuf" and (schema is None or not schema.is_resolved):
        raise ConfigError("option valueFormat='protobuf' needs valueSchema, a compiled schema: orders.desc")
    return ValueSettings(
        schema=schema,
        registry=schema.registry if schema is not None else registry,
        format=form,
        fails=options.choice("badRows", "fail", _BAD_ROWS),
    )


def _schema(options: Options, registry: str) -> ValueSchema | None:
    text = options.text("valueSchema")
    if registry:
        check_address(registry)
    if text is None:
        return ValueSchema(registry=registry) if registry else None
    try:
        found = read_schema(text)
    except ConfigError as error:
        raise ConfigError(f"option valueSchema: {error}") from error
    return replace(found, registry=registry) if registry else found
