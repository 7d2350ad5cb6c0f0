"""Paths as Spark takes them: with a scheme, and, where it reads, without anything that fits other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.spark.pipelines.spark_path import spark_path, spark_pattern


def test_a_path_is_of_this_machine_and_has_its_characters_as_they_are() -> None:
    assert spark_path(Path("/data/a b#c%20 [x]")) == "file:///data/a b#c%20 [x]"


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/data/lake", "file:///data/lake"),
        ("/data/lake [2026]", r"file:///data/lake \[2026\]"),
        ("/data/{a,b}*?", r"file:///data/\{a,b\}\*\?"),
        ("/data/a\\b", r"file:///data/a\\b"),
    ],
)
def test_what_would_fit_other_names_is_escaped(path: str, pattern: str) -> None:
    assert spark_pattern(Path(path)) == pattern
