"""The options that have values decoded, and the columns that come of it.

    valueFormat=json, valueSchema="order STRING, total DECIMAL(12,2)"

adds the column `data`, a struct of these types, to those of a record. badRows says what becomes of a value
that does not fit: `fail`, the default, fails the read and names the record; `null` makes `data` null there
and adds the column `dataError`, which says why and is null elsewhere. A value that is null fits.

A schema given by the user may have these columns in any place, and leave them out: then nothing is decoded.
The type of `data` in it takes the place of valueSchema.

Nothing heavy is imported: Spark starts a Python that asks for the columns and for no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import ConfigError
from tailrace.spark.options import Options
from tailrace.spark.value.schema import ValueSchema, read_schema

DATA, DATA_ERROR = "data", "dataError"
OPTIONS = ("valueFormat", "valueSchema", "badRows")
_FORMATS = {"json": "json"}
_BAD_ROWS = {"fail": True, "null": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSettings:
    """How values are decoded. Picklable: it goes to the workers."""

    schema: ValueSchema | None
    """None where the user's schema has to say it."""
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
    options.choice("valueFormat", "", _FORMATS)
    text = options.text("valueSchema")
    try:
        schema = None if text is None else read_schema(text)
    except ConfigError as error:
        raise ConfigError(f"option valueSchema: {error}") from error
    return ValueSettings(schema=schema, fails=options.choice("badRows", "fail", _BAD_ROWS))
