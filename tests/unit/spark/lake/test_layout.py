"""Names of a lake: what they become, what is refused, where times beyond the calendar go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.spark.lake.layout import (
    DAY_US,
    DataName,
    check_topic,
    data_path,
    day_text,
    is_staged_path,
    read_data_path,
    resolve_root,
)

NAME = DataName("my.topic_1", "2026-11-16", 3, 5, 42)
PATH = "topic=my.topic_1/dt=2026-11-16/p00003-00000000000000000005-00000000000000000042.parquet"


def test_a_data_file_is_named_by_topic_day_partition_and_offsets() -> None:
    assert data_path(NAME) == PATH
    assert read_data_path(PATH) == NAME


def test_a_second_file_of_the_same_range_has_its_turn_in_the_name() -> None:
    assert data_path(NAME, turn=2) == PATH.replace(".parquet", "-2.parquet")
    assert read_data_path(data_path(NAME, turn=2)) == NAME


@pytest.mark.parametrize(
    "path",
    [
        "",
        "orders.parquet",
        f"../{PATH}",
        f"/{PATH}",
        f"{PATH}.old",
        PATH.replace("my.topic_1", ".."),
        PATH.replace("my.topic_1", "a/b"),
        PATH.replace("00000000000000000005", "5"),
        PATH.replace(".parquet", "-0.parquet"),
        PATH.replace("2026-11-16", "today"),
        PATH + "\n",
    ],
)
def test_other_paths_are_not_data_files(path: str) -> None:
    assert read_data_path(path) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "a=b", "ä", "x" * 250, "a\n"])
def test_a_topic_that_cannot_be_a_folder_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a topic"):
        check_topic(topic)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("_tailrace/staging/run-1/abc.staged", True),
        ("_tailrace/staging/run-1/abc.parquet", False),
        ("_tailrace/staging/../abc.staged", False),
        ("_tailrace/staging/run/../abc.staged", False),
        ("/etc/passwd", False),
    ],
)
def test_staged_files_lie_in_staging_folders(path: str, is_one: bool) -> None:
    assert is_staged_path(path) is is_one


@pytest.mark.parametrize(
    ("time_us", "day"),
    [
        (0, "1970-01-01"),
        (DAY_US - 1, "1970-01-01"),
        (DAY_US, "1970-01-02"),
        (-1000, "1969-12-31"),
        (-62_135_596_800_000_000, "0001-01-01"),
        (-62_135_596_800_000_001, "0001-01-01"),
        (253_402_300_799_999_999, "9999-12-31"),
        (253_402_300_800_000_000, "9999-12-31"),
        ((1 << 63) - 1, "9999-12-31"),
        (-(1 << 63), "0001-01-01"),
    ],
)
def test_every_time_has_a_day_of_the_calendar(time_us: int, day: str) -> None:
    assert day_text(time_us // DAY_US) == day


def test_a_lake_is_a_folder_and_file_urls_are_understood(tmp_path: Path) -> None:
    assert resolve_root(str(tmp_path)) == tmp_path
    assert resolve_root(tmp_path.as_uri()) == tmp_path
    assert resolve_root("file:///a%20b") == Path("/a b")
    assert resolve_root("lake").is_absolute()


@pytest.mark.parametrize("root", ["s3://bucket/lake", "hdfs://host/lake", "file://host/lake"])
def test_other_places_than_folders_are_refused_with_the_way_out(root: str) -> None:
    with pytest.raises(ConfigError, match="Mount it"):
        resolve_root(root)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="Name a folder"):
        resolve_root("")
