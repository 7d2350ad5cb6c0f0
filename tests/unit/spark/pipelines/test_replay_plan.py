"""What of a lake is replayed and by which tasks: planning alone, over files that exist only here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.lake import DataFile, Snapshot
from tailrace.spark.pipelines.replay_plan import (
    Epoch,
    Lane,
    LaneAt,
    Selection,
    Share,
    ShareDone,
    count_partitions,
    count_rows,
    parse_partitions,
    parse_speed,
    parse_time_us,
    plan_lanes,
    plan_rest,
    plan_selection,
    plan_shares,
    plan_skip,
)

S_US = 1_000_000


def file(
    first: int,
    last: int,
    *,
    partition: int = 0,
    topic: str = "orders",
    rows: int | None = None,
    at_s: int = 0,
) -> DataFile:
    return DataFile(
        path=f"topic={topic}/dt=1970-01-01/p{partition:05}-{first:020}-{last:020}.parquet",
        topic=topic,
        partition=partition,
        day="1970-01-01",
        first_offset=first,
        last_offset=last,
        rows=last - first + 1 if rows is None else rows,
        bytes=100,
        min_timestamp_us=(at_s + first) * S_US,
        max_timestamp_us=(at_s + last) * S_US,
    )


def snapshot(files: Sequence[DataFile], ends: dict[TopicPartition, int] | None = None) -> Snapshot:
    return Snapshot(version=1, files=files, ends=ends or {}, bad=())


def share(lanes: Sequence[Lane], **fields: object) -> Share:
    counts = {lane.partition: 0 for lane in lanes}
    plain: dict[str, object] = {"counts": counts, "seconds_max": 1.0, "selection": Selection(), **fields}
    return Share(bootstrap="b:1", root="/lake", topic="t", lanes=tuple(lanes), **plain)  # type: ignore[arg-type]


# ---- what a person wrote


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", S_US),
        ("1970-01-01T01:00:01+01:00", S_US),
        ("1970-01-01T00:00:01.000002Z", S_US + 2),
        ("1969-12-31T23:59:59", -S_US),
        ("9999-12-31", 253402214400 * S_US),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, us: int) -> None:
    assert parse_time_us("since", text) == us


@pytest.mark.parametrize("text", ["", "yesterday", "10m", "2026-13-01", "99999-01-01"])
def test_what_is_no_time_is_named_with_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"since = .*is no time"):
        parse_time_us("since", text)


@pytest.mark.parametrize(
    ("text", "speed"), [("max", None), ("MAX", None), ("1x", 1.0), ("10", 10.0), ("0.5X", 0.5)]
)
def test_speeds(text: str, speed: float | None) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "0x", "0", "-1x", "fast", "1e3x", "nanx"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="speed"):
        parse_speed(text)


@pytest.mark.parametrize(("value", "count"), [("same", None), ("Same", None), (3, 3), ("3", 3)])
def test_partitions(value: int | str, count: int | None) -> None:
    assert parse_partitions(value) == count


@pytest.mark.parametrize("value", [0, -1, "0", "-3", "some", "", "٣", 1.5])
def test_what_is_no_number_of_partitions_is_refused(value: int | str) -> None:
    with pytest.raises(ConfigError, match="partitions"):
        parse_partitions(value)


def test_a_selection_has_all_that_was_written() -> None:
    found = plan_selection(since="1970-01-01", until="1970-01-02", since_offset=5, until_offset=6, key="kö")
    assert found == Selection(
        since_us=0, until_us=86_400 * S_US, since_offset=5, until_offset=6, key="kö".encode()
    )


@pytest.mark.parametrize(
    ("since", "until", "since_offset", "until_offset"),
    [
        ("1970-01-02", "1970-01-01", None, None),
        ("1970-01-02", "1970-01-02", None, None),
        (None, None, 5, 5),
        (None, None, -1, None),
        (None, None, None, -1),
    ],
)
def test_a_selection_of_nothing_is_refused(
    since: str | None, until: str | None, since_offset: int | None, until_offset: int | None
) -> None:
    with pytest.raises(ConfigError):
        plan_selection(
            since=since, until=until, since_offset=since_offset, until_offset=until_offset, key=None
        )


# ---- lanes


def test_lanes_have_the_files_of_their_partition_in_order() -> None:
    files = [file(10, 19), file(0, 9), file(0, 9, partition=2), file(0, 9, topic="other")]
    lanes = plan_lanes(snapshot(files), "orders", Selection())
    assert [(lane.partition, [each.first_offset for each in lane.files]) for lane in lanes] == [
        (0, [0, 10]),
        (2, [0]),
    ]


@pytest.mark.parametrize(
    ("selection", "first_offsets"),
    [
        (Selection(since_offset=10), [10, 20]),
        (Selection(since_offset=9), [0, 10, 20]),
        (Selection(until_offset=10), [0]),
        (Selection(until_offset=11), [0, 10]),
        (Selection(since_us=19 * S_US), [10, 20]),
        (Selection(since_us=19 * S_US + 1), [20]),
        (Selection(until_us=10 * S_US), [0]),
        (Selection(until_us=10 * S_US + 1), [0, 10]),
        (Selection(since_offset=30), []),
    ],
)
def test_files_that_cannot_have_a_selected_row_are_left_out(
    selection: Selection, first_offsets: list[int]
) -> None:
    lanes = plan_lanes(snapshot([file(0, 9), file(10, 19), file(20, 29)]), "orders", selection)
    assert [each.first_offset for lane in lanes for each in lane.files] == first_offsets


def test_partitions_without_files_count_too() -> None:
    ends = {TopicPartition("orders", 3): 0, TopicPartition("other", 8): 1}
    assert count_partitions(snapshot([file(0, 9, partition=1)], ends), "orders") == 4
    assert count_partitions(snapshot([file(0, 9)], ends), "absent") == 0


def test_rows_are_counted_only_where_files_tell() -> None:
    lanes = plan_lanes(snapshot([file(0, 9), file(10, 19, rows=3)]), "orders", Selection())
    assert count_rows(lanes, Selection()) == 13
    assert count_rows(lanes, Selection(key=b"k")) is None
    assert count_rows(lanes, Selection(since_offset=1)) is None


# ---- what is in the target already


@pytest.mark.parametrize(
    ("there", "files_left", "passed"),
    [(0, 3, 0), (10, 3, 0), (11, 2, 10), (20, 2, 10), (21, 1, 20), (30, 1, 20), (31, 0, 30)],
)
def test_whole_files_are_skipped_but_the_last_row_that_is_there(
    there: int, files_left: int, passed: int
) -> None:
    lane = Lane(partition=0, files=(file(0, 9), file(10, 19), file(20, 29)))
    rest, count = plan_skip(lane, Selection(), there)
    assert (len(rest.files), count) == (files_left, passed)
    assert rest.start == passed


def test_files_with_gaps_are_skipped_by_their_rows() -> None:
    lane = Lane(partition=0, files=(file(0, 99, rows=4), file(100, 199, rows=5)))
    rest, count = plan_skip(lane, Selection(), 5)
    assert (rest.start, count) == (100, 4)


def test_files_that_overlap_are_not_skipped() -> None:
    lane = Lane(partition=0, files=(file(0, 20), file(10, 30), file(40, 50)))
    assert plan_skip(lane, Selection(), 40) == (lane, 0)


@pytest.mark.parametrize("selection", [Selection(key=b"k"), Selection(since_us=1), Selection(until_us=1)])
def test_nothing_is_skipped_where_rows_must_be_read_to_be_counted(selection: Selection) -> None:
    lane = Lane(partition=0, files=(file(0, 9), file(10, 19)))
    assert plan_skip(lane, selection, 15) == (lane, 0)


def test_a_file_that_is_selected_in_part_is_not_skipped() -> None:
    lane = Lane(partition=0, files=(file(0, 9), file(10, 19)), start=3)
    assert plan_skip(lane, Selection(since_offset=3), 10) == (lane, 0)
    lane = Lane(partition=0, files=(file(0, 9), file(10, 19)))
    rest, count = plan_skip(lane, Selection(until_offset=15), 100)
    assert ([each.first_offset for each in rest.files], count) == ([10], 10)


# ---- tasks


def test_lanes_are_dealt_out_evenly_with_their_counts() -> None:
    lanes = [
        Lane(partition=at, files=(file(0, rows - 1, partition=at),)) for at, rows in enumerate([9, 5, 4])
    ]
    shares = plan_shares(share(lanes, counts={0: 7, 1: 8, 2: 9}), tasks=2)
    assert [[lane.partition for lane in each.lanes] for each in shares] == [[0], [1, 2]]
    assert [dict(each.counts) for each in shares] == [{0: 7}, {1: 8, 2: 9}]


def test_there_are_no_more_tasks_than_lanes() -> None:
    assert len(plan_shares(share([Lane(partition=0, files=())]), tasks=8)) == 1
    assert plan_shares(share([]), tasks=8) == []


@pytest.mark.parametrize("fields", [{"fan": 3}, {"speed": 2.0}])
def test_lanes_that_are_merged_stay_in_one_task(fields: dict[str, object]) -> None:
    whole = share([Lane(partition=at, files=()) for at in range(4)], **fields)
    assert plan_shares(whole, tasks=4) == [whole]


def test_the_rest_goes_on_where_tasks_came_to() -> None:
    lanes = [
        Lane(partition=at, files=(file(0, 9, partition=at), file(10, 19, partition=at))) for at in (0, 1)
    ]
    epoch = Epoch(wall_s=1.0, event_us=2)
    done = [
        ShareDone(
            lanes=[LaneAt(partition=0, start=12, floor_us=77, is_done=False)],
            counts={0: 12},
            sent={0: 12},
            skipped={0: 0},
            epoch=epoch,
        ),
        ShareDone(
            lanes=[LaneAt(partition=1, start=20, floor_us=0, is_done=True)],
            counts={1: 20},
            sent={1: 20},
            skipped={1: 0},
            epoch=None,
        ),
    ]
    rest = plan_rest(share(lanes), done)
    (lane,) = rest.lanes
    assert (lane.partition, lane.start, lane.floor_us) == (0, 12, 77)
    assert [each.first_offset for each in lane.files] == [10]
    assert (rest.counts, rest.epoch) == ({0: 12, 1: 20}, epoch)
