"""Where the rows of a query go: a terminal, a topic, or a folder of Parquet files.

    <folder>/_tailrace_sql.json      which query's result this is: its id is in the checkpoint, too
    <folder>/batch=12/*.parquet      what batch 12 gave; made under a hidden name and renamed when it is whole

A stream may give a batch again after it was killed. The folder of a batch that is there is not written again,
so a row is there once. That needs the numbers of batches to go on: a folder whose checkpoint is gone is
refused, since its numbers would start over.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.model import ConfigError, escape
from tailrace.spark.pipelines.spark_path import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Show = Callable[[int, Sequence[str], Sequence[Sequence[object]], bool], None]
"""Shows rows of a batch: its number, the columns, the rows, and whether there were more."""

MARKER = "_tailrace_sql.json"
_UNFINISHED_MARKER = f".{MARKER}."
_CELL_CHARS_MAX = 60


# ---- the terminal


def print_table(batch: int, names: Sequence[str], rows: Sequence[Sequence[object]], more: bool) -> None:
    """Rows as a table, on standard output; nothing for a batch without rows."""
    if not rows:
        return
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    print(f"batch {batch}")
    for line in (names, *cells):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    if more:
        print("...")
    print(flush=True)


def print_json(_batch: int, names: Sequence[str], rows: Sequence[Sequence[object]], _more: bool) -> None:
    """Rows as JSON, one in a line, on standard output."""
    for row in rows:
        print(json.dumps(dict(zip(names, map(_plain, row), strict=True)), default=str))
    print(end="", flush=True)


def _cell(value: object) -> str:
    plain = _plain(value)
    text = "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain, default=str)
    text = escape(text)
    return text if len(text) <= _CELL_CHARS_MAX else text[: _CELL_CHARS_MAX - 1] + "…"


def _plain(value: Any) -> Any:
    """A value of Spark's as JSON has it."""
    if hasattr(value, "asDict"):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def show_rows(frame: DataFrame, batch: int, *, rows_max: int, show: Show) -> int:
    """Show the first rows of a frame, and say how many."""
    found = frame.limit(rows_max + 1).collect()
    rows = [tuple(row) for row in found[:rows_max]]
    show(batch, frame.columns, rows, len(found) > rows_max)
    return len(rows)


def show_batch(frame: DataFrame, batch: int, *, rows_max: int, show: Show) -> None:
    """Show the first rows of a stream's batch. All of it is computed, shown or not.

    An aggregation stores its state partition by partition, and Spark fails a batch that skipped some of them.
    """
    kept = frame.persist()
    try:
        kept.count()
        show_rows(kept, batch, rows_max=rows_max, show=show)
    finally:
        kept.unpersist()


# ---- a topic


def as_records(frame: DataFrame) -> DataFrame:
    """Rows as records: `value` and what else a record has, as they are; else the whole row as JSON."""
    from pyspark.sql import functions as f

    if "value" not in frame.columns:
        key = [_as_text(frame, "key")] if "key" in frame.columns else []
        return frame.select(*key, f.to_json(f.struct("*")).alias("value"))
    columns = [_as_text(frame, name) for name in ("key", "value") if name in frame.columns]
    types = dict(frame.dtypes)
    if types.get("headers", "").startswith("array<struct<key:string,value:binary>>"):
        columns.append(f.col("headers"))
    if types.get("timestamp") == "timestamp":
        columns.append(f.col("timestamp"))
    return frame.select(*columns)


def _as_text(frame: DataFrame, name: str) -> Any:
    """A column as text, unless it is text or bytes."""
    from pyspark.sql import functions as f

    kind = dict(frame.dtypes)[name]
    if kind in ("string", "binary"):
        return f.col(name)
    if kind.startswith(("struct", "array", "map")):
        return f.to_json(f.col(name)).alias(name)
    return f.col(name).cast("string").alias(name)


# ---- a folder


def claim_folder(folder: Path, checkpoint: Path, *, query: str, columns: str) -> None:
    """Make the folder that of this checkpoint, or find that it is; ConfigError if it is another's.

    Its files must all have the same columns, or no reader could read the folder as one table.
    """
    marker = _read_marker(folder / MARKER)
    mine, its = _id_of(_read_marker(checkpoint / MARKER)), _id_of(marker)
    if its is None and folder.exists() and _has_strangers(folder, checkpoint):
        raise ConfigError(
            f"sql: {str(folder)!r} has files that are no result of a query. Name another folder"
        )
    if its is not None and its != mine:
        raise ConfigError(
            f"sql: {str(folder)!r} has the result of another query, or of one whose checkpoint is gone:"
            f" {str(checkpoint)!r} does not belong to it. Name another folder, or delete this one"
        )
    if marker is not None and marker.get("columns", columns) != columns:
        raise ConfigError(
            f"sql: {str(folder)!r} has rows with the columns {marker['columns']}, and the query gives"
            f" {columns} now. Name another folder"
        )
    for place in (folder, checkpoint):
        place.mkdir(parents=True, exist_ok=True)
    if its is None:
        # The checkpoint first: a folder without its id is refused, a checkpoint without a folder is not.
        mine = mine or uuid.uuid4().hex
        for place in (checkpoint, folder):
            write_marker(place / MARKER, {"v": 1, "id": mine, "query": query, "columns": columns})


def _has_strangers(folder: Path, checkpoint: Path) -> bool:
    """Whether there is more in a folder than its checkpoint and a marker whose writer was killed."""
    return any(
        path != checkpoint and not path.name.startswith(_UNFINISHED_MARKER) for path in folder.iterdir()
    )


def _read_marker(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        return {**found, "id": str(found["id"])}
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"sql: {str(path)!r} is damaged. Name another folder") from None


def _id_of(marker: dict[str, Any] | None) -> str | None:
    return None if marker is None else str(marker["id"])


def write_marker(path: Path, content: Mapping[str, object]) -> None:
    """Write a small file as a whole or not at all; it is on disk when this returns."""
    made = path.with_name(f"{_UNFINISHED_MARKER}{os.getpid()}")
    with made.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    _sync(path.parent)


def make_empty_folder(folder: Path) -> None:
    """A folder for one result; ConfigError if it has more than what a run left that was killed."""
    if folder.exists() and any(path.name != _unfinished(0) for path in folder.iterdir()):
        raise ConfigError(f"sql: {str(folder)!r} is not empty. Name another folder for this result")
    folder.mkdir(parents=True, exist_ok=True)


def _unfinished(batch: int) -> str:
    """The name of a batch's folder until it is whole."""
    return f".batch={batch}"


def write_batch(frame: DataFrame, batch: int, *, folder: Path) -> None:
    """Write what a batch gave, unless it is there; it is computed in any case, as `show_batch` tells why."""
    final = folder / f"batch={batch}"
    if final.exists():
        frame.write.format("noop").mode("overwrite").save()
        return
    hidden = folder / _unfinished(batch)
    if hidden.exists():
        shutil.rmtree(hidden)
    frame.write.parquet(spark_path(hidden))
    for path in hidden.iterdir():
        _sync(path)
    _sync(hidden)
    hidden.rename(final)
    _sync(folder)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
