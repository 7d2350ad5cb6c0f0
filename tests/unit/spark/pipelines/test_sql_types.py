"""The types of a query: which win, and that they are kept; nothing here starts Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, MapType, StringType, StructType

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql_types import (
    TYPES_FILE,
    TopicType,
    columns_text,
    plan_type,
    read_kept,
    write_kept,
)


def kind(column: DataType, origin: str = "declared", shape: object = None) -> TopicType:
    struct = StructType().add("a", column).json()
    return TopicType(origin=origin, struct=struct, shape=shape)  # type: ignore[arg-type]


LONG, DOUBLE = kind(LongType()), kind(DoubleType())
GUESSED = kind(StringType(), "guessed", {"a": "string"})


def plan(
    declared: TopicType | None, kept: TopicType | None, *, widen: bool = False, records: bool = True
) -> TopicType | None:
    def guess(known: object) -> TopicType | None:
        return replace(GUESSED, shape=known) if records else None

    return plan_type("orders", declared=declared, kept=kept, guess=guess, widen=widen)


def test_declared_types_win_over_a_guess_and_kept_ones_over_both() -> None:
    assert plan(LONG, None) == LONG
    assert plan(None, None) == replace(GUESSED, shape=None)
    assert plan(None, None, records=False) is None
    assert plan(None, LONG) == LONG
    assert plan(LONG, LONG) == LONG
    with pytest.raises(
        ConfigError, match=r"declared as a DOUBLE, and the query began with a BIGINT.*--widen"
    ):
        plan(DOUBLE, LONG)


def test_types_change_on_command() -> None:
    assert plan(DOUBLE, LONG, widen=True) == DOUBLE
    assert plan(None, GUESSED, widen=True) == GUESSED  # made of the shape that was kept
    assert plan(None, LONG, widen=True, records=False) == LONG


def test_types_are_kept_without_passwords(tmp_path: Path) -> None:
    place = tmp_path / "cp"
    assert read_kept(place) == {}
    avro = replace(LONG, format="avro", definition="{}", registry="http://ann:secret@host:8081/x")
    write_kept(place, {"orders": avro, "payments": GUESSED})
    assert "secret" not in (place / TYPES_FILE).read_text()
    assert read_kept(place) == {
        "orders": replace(avro, registry="http://host:8081/x"),
        "payments": GUESSED,
    }


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"v": 2, "topics": {}}', '{"v": 1}', '{"v":1,"topics":{"a":5}}']
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / TYPES_FILE).write_text(content)
    with pytest.raises(ConfigError, match="is damaged, or of another version"):
        read_kept(tmp_path)


def test_a_struct_is_shown_as_columns_that_can_be_declared() -> None:
    struct = (
        StructType()
        .add("a b", ArrayType(StructType().add("x-y", LongType(), nullable=False)))
        .add("m", MapType(StringType(), DoubleType()))
    )
    assert columns_text(struct) == ("`a b` ARRAY<STRUCT<`x-y` BIGINT NOT NULL>>, m MAP<STRING, DOUBLE>")
