"""The goals beside figures made up here."""

from __future__ import annotations

import dataclasses

import pytest

from tailrace.bench.report import GOALS, Goal, LogReport, Twins, judge

KEYS = {
    "append_16k_ratio",
    "append_1m_ratio",
    "read_hot_ratio",
    "group_commit_ratio",
    "many_partitions_ratio",
    "recovery_s_per_gib",
    "encode_per_s",
    "decode_per_s",
    "machine",
    "details",
}
GOOD = LogReport(
    append_16k_ratio=0.6,
    append_1m_ratio=0.85,
    read_hot_ratio=0.8,
    group_commit_ratio=12,
    many_partitions_ratio=10,
    recovery_s_per_gib=4,
    encode_per_s=Twins(pure=1, compiled=3_000_000),
    decode_per_s=Twins(pure=400_000, compiled=5_000_000),
    machine={},
    details={},
)


def test_the_keys_are_the_promised_ones() -> None:
    assert set(GOOD.as_row()) == KEYS


def test_a_figure_that_just_reaches_its_goal_meets_it() -> None:
    assert [verdict.met for verdict in judge(GOOD)] == [True] * len(GOALS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("append_16k_ratio", 0.599),
        ("append_1m_ratio", 0.849),
        ("read_hot_ratio", 0.799),
        ("group_commit_ratio", 11.9),
        ("many_partitions_ratio", 9.9),
        ("recovery_s_per_gib", 4.1),
        ("encode_per_s", Twins(pure=1, compiled=2_999_999)),
        ("decode_per_s", Twins(pure=399_999, compiled=5_000_000)),
        ("decode_per_s", Twins(pure=400_000, compiled=4_999_999)),
    ],
)
def test_a_figure_that_does_not_misses_it_alone(key: str, value: object) -> None:
    report = dataclasses.replace(GOOD, **{key: value})  # type: ignore[arg-type]
    missed = [verdict.goal.key for verdict in judge(report) if not verdict.met]
    assert missed == [key]


def test_what_is_not_there_neither_meets_nor_misses() -> None:
    report = dataclasses.replace(GOOD, decode_per_s=Twins(pure=400_000, compiled=None))
    (absent,) = [verdict for verdict in judge(report) if verdict.value is None]
    assert absent.goal.twin == "compiled"
    assert absent.met is None


def test_less_is_better_only_where_a_goal_says_so() -> None:
    assert Goal(key="x", text="", limit=4, at_most=True).is_met(3.9)
    assert not Goal(key="x", text="", limit=4, at_most=True).is_met(4.1)
    assert not Goal(key="x", text="", limit=4).is_met(3.9)
