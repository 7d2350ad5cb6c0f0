"""Values as the column `data`, and what becomes of a value that does not fit its type.

    fail          the query fails and names the record; the default, since nothing is wrong in silence
    null          `data` is null there; the rows are counted
    topic:NAME    the record goes to this topic as it is, with the reason in its headers, and is not in the
                  view; it is counted

A value that is null fits: it is a tombstone, and `data` is null. A value that does not fit is a bad row as a
whole: of a half-read row no reader could tell. Fields that a type does not have are ignored.

A query that does not use `data` does not decode it, so there is nothing that could fail to fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

BAD = "_tailrace_bad"
"""The column that says why a value does not fit; null where it does."""
_PARSED, _CORRUPT = "_tailrace_parsed", "_tailrace_corrupt"
_TOPIC = "topic:"
_WORDS = ("fail", "null")
_NAMED_MAX = 64
_PLAIN_NAME = re.compile(r"[\w .-]{1,100}")
HEADERS = ("_dlq_topic", "_dlq_partition", "_dlq_offset", "_dlq_reason")
"""Added to the headers of a bad row, as dead letters have them: where it comes from, and why it is bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Where bad rows go."""

    mode: str  # fail, null or topic
    topic: str = ""


def read_bad_rows(text: str) -> BadRows:
    """What `--bad-rows` says; ConfigError if it is none of the three."""
    if text in _WORDS:
        return BadRows(mode=text)
    topic = text.removeprefix(_TOPIC)
    if topic == text or not topic.strip():
        raise ConfigError(f"sql: bad_rows = {text!r} is none of fail, null, topic:NAME")
    return BadRows(mode="topic", topic=topic)


def decode_json(frame: DataFrame, struct: StructType) -> DataFrame:
    """The rows with `data`, and BAD where the value does not fit."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    text = f.col("value").cast("string")
    wanted = StructType([*struct.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = frame.withColumn(_PARSED, f.from_json(text, wanted, options))
    found = f.col(_PARSED)
    missing = _missing(found, struct)
    is_corrupt = found.isNull() | found[_CORRUPT].isNotNull()
    misfit = f.coalesce(_misfits(found, text, struct), f.lit("it is not a JSON object of these types"))
    reason = f.when(is_corrupt, misfit).otherwise(missing)
    decoded = parsed.withColumn(BAD, f.when(f.col("value").isNotNull(), reason))
    return decoded.withColumn("data", found.dropFields(_CORRUPT)).drop(_PARSED)


def _missing(found: Column, struct: StructType) -> Column:
    """The first field that may not be null and is; null if there is none."""
    from pyspark.sql import functions as f

    return f.coalesce(*_missing_fields(found, struct, ""), f.lit(None).cast("string"))


def _missing_fields(found: Column, struct: StructType, path: str) -> Iterator[Column]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    for field in struct.fields:
        name = f"{path}{field.name}"
        if not field.nullable:
            yield f.when(found.isNotNull() & found[field.name].isNull(), f.lit(f"{name} is missing"))
        if isinstance(field.dataType, StructType):
            yield from _missing_fields(found[field.name], field.dataType, f"{name}.")


def _misfits(found: Column, text: Column, struct: StructType) -> Column:
    """The fields that are in the JSON and could not be read, as far as they can be named; else null."""
    from pyspark.sql import functions as f

    names = [field.name for field in struct.fields if _PLAIN_NAME.fullmatch(field.name)][:_NAMED_MAX]
    if not names:
        return f.lit(None).cast("string")
    each = [
        f.when(found[name].isNull() & f.get_json_object(text, f"$['{name}']").isNotNull(), f.lit(name))
        for name in names
    ]
    joined = f.concat_ws(", ", *each)
    return f.when(joined != "", f.concat(joined, f.lit(" does not fit")))


def settle(frame: DataFrame, bad_rows: BadRows, *, columns: str) -> DataFrame:
    """The decoded rows as the view has them. `columns` says what `data` is, for the error."""
    from pyspark.sql import functions as f

    if bad_rows.mode == "topic":
        return frame.where(f.col(BAD).isNull()).drop(BAD)
    if bad_rows.mode == "null":
        return frame.withColumn("data", f.when(f.col(BAD).isNull(), f.col("data"))).drop(BAD)
    message = f.concat(
        *(f.col("topic"), f.lit("-"), f.col("partition"), f.lit(" at offset "), f.col("offset")),
        *(f.lit(": "), f.col(BAD), f.lit(f". data is {columns}. {_WAYS_OUT}")),
    )
    failing = f.when(f.col(BAD).isNull(), f.col("data")).otherwise(f.raise_error(message))
    return frame.withColumn("data", failing).drop(BAD)


_WAYS_OUT = (
    "To go on: --bad-rows null (data is null there), --bad-rows topic:NAME (such records go to that topic),"
    " or other types with --schema or --widen"
)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?" + re.escape(_WAYS_OUT) + ")", re.DOTALL)


def find_raised(text: str) -> str | None:
    """What `settle` raised, in the text of an error of Spark's."""
    found = _RAISED.search(text)
    return found[1] if found else None


def bad_records(frame: DataFrame) -> DataFrame:
    """The bad rows among decoded ones as records: key, value and timestamp as they were, and why."""
    from pyspark.sql import functions as f

    added = [
        f.struct(f.lit(name).alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
        for name, column in zip(HEADERS, ("topic", "partition", "offset", BAD), strict=True)
    ]
    return frame.where(f.col(BAD).isNotNull()).select(
        "key", "value", "timestamp", f.concat(f.col("headers"), f.array(*added)).alias("headers")
    )
