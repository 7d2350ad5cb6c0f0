"""Offsets of a stream as JSON, and the batches that they name, by generated positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.source.offset import StreamOffset, is_kafkas, plan_batch, read_offset, write_offset

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 1000))
positions = st.dictionaries(partitions, st.integers(0, (1 << 63) - 1), max_size=5)
offsets = st.builds(
    StreamOffset,
    positions=positions,
    starts=st.none() | positions,
    ids=st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3),
    lows=positions,
)


def batch(start: StreamOffset, end: StreamOffset) -> list[str]:
    return [str(each) for each in plan_batch(write_offset(start), write_offset(end))]


@given(offsets)
def test_an_offset_comes_back_from_its_json(offset: StreamOffset) -> None:
    assert read_offset(json.loads(json.dumps(write_offset(offset)))) == offset


@given(positions)
def test_the_same_offset_is_always_the_same_text(found: dict[TopicPartition, int]) -> None:
    turned = dict(reversed(found.items()))
    assert json.dumps(write_offset(StreamOffset(positions=found))) == json.dumps(
        write_offset(StreamOffset(positions=turned))
    )


def test_a_batch_goes_from_where_the_last_one_ended() -> None:
    start = StreamOffset(positions={A: 5, B: 2}, starts={A: 0, B: 0})
    end = StreamOffset(positions={A: 9, B: 2}, starts={A: 5, B: 2})
    assert batch(start, end) == ["orders-0 [5, 9)"]


def test_the_first_batch_replayed_begins_where_it_began_though_latest_moved_on() -> None:
    end = StreamOffset(positions={A: 9}, starts={A: 5})
    assert batch(StreamOffset(positions={A: 9}), end) == ["orders-0 [5, 9)"]
    assert batch(StreamOffset(positions={A: 20}), end) == ["orders-0 [5, 9)"]


def test_a_new_partition_begins_where_the_end_says() -> None:
    start = StreamOffset(positions={A: 5}, starts={A: 0})
    end = StreamOffset(positions={A: 5, B: 7}, starts={A: 5, B: 3})
    assert batch(start, end) == ["orders-1 [3, 7)"]


def test_a_batch_without_anything_new_is_empty() -> None:
    offset = StreamOffset(positions={A: 9}, starts={A: 5})
    assert batch(offset, offset) == []


def test_an_initial_offset_ends_no_batch() -> None:
    assert batch(StreamOffset(positions={A: 3}), StreamOffset(positions={A: 9})) == []


def test_before_spark_4_2_the_start_is_spark_s_and_new_partitions_begin_at_their_low() -> None:
    start = StreamOffset(positions={A: 5}, starts={})
    end = StreamOffset(positions={A: 9, B: 7}, starts={}, lows={A: 0, B: 2})
    assert batch(start, end) == ["orders-0 [5, 9)", "orders-1 [2, 7)"]


@pytest.mark.parametrize("topic", ["orders", "v", "pos"])
def test_an_offset_of_spark_s_kafka_source_is_the_end_of_a_batch_without_its_beginning(topic: str) -> None:
    written = {topic: {"0": 5, "1": 0}}
    assert is_kafkas(written)
    assert read_offset(written) == StreamOffset(
        positions={TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0}, starts={}
    )
    assert not is_kafkas(write_offset(read_offset(written)))


def test_a_pattern_that_matched_no_topic_yet_is_an_offset_of_spark_s_kafka_source() -> None:
    assert read_offset({}) == StreamOffset(positions={}, starts={})


@pytest.mark.parametrize(
    "written",
    [
        {"v": 2, "pos": {}},
        {"orders": {"0": -1}},
        {"orders": {"0": "5"}},
        {"orders": {"0": 5}, "pos": 3},
        {"v": 1},
        {"v": 1, "pos": []},
        {"v": 1, "pos": {"orders": 5}},
        {"v": 1, "pos": {"orders": {"0": "5"}}},
        {"v": 1, "pos": {"orders": {"0": -1}}},
        {"v": 1, "pos": {"orders": {"x": 1}}},
        {"v": 1, "pos": {"orders": {"0": True}}},
        {"v": 1, "pos": {}, "from": 3},
        {"v": 1, "pos": {}, "ids": {"orders": 1}},
        {"v": 1, "pos": {}, "low": []},
    ],
)
def test_an_offset_that_is_not_ours_is_refused_with_a_way_out(written: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="start over with a new checkpoint"):
        read_offset(written)
