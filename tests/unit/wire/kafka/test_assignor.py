"""Sharing partitions out, and the bytes that members exchange, broken ones among them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ProtocolError, TopicPartition
from tailrace.wire.kafka.assignor import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)


def indexes(share: list[TopicPartition], topic: str = "t") -> list[int]:
    return [each.partition for each in share if each.topic == topic]


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    result = assign_range({"b": ["t"], "a": ["t"], "c": ["t"]}, {"t": 7})
    assert {member: indexes(share) for member, share in result.items()} == {
        "a": [0, 1, 2],
        "b": [3, 4],
        "c": [5, 6],
    }


def test_range_gives_a_topic_only_to_those_who_want_it() -> None:
    result = assign_range({"a": ["t"], "b": ["t", "u"]}, {"t": 2, "u": 2})
    assert indexes(result["a"]) == [0]
    assert indexes(result["b"]) == [1]
    assert indexes(result["b"], "u") == [0, 1]


def test_round_robin_deals_over_topics() -> None:
    result = assign_round_robin({"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert [(each.topic, each.partition) for each in result["a"]] == [("t", 0), ("t", 2), ("u", 1)]
    assert [(each.topic, each.partition) for each in result["b"]] == [("t", 1), ("u", 0), ("u", 2)]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_topic_that_does_not_exist_is_assigned_to_nobody(name: str) -> None:
    assert ASSIGNORS[name]({"a": ["absent"]}, {}) == {"a": []}


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), min_size=1),
    st.fixed_dictionaries({"t": st.integers(0, 9), "u": st.integers(0, 9), "v": st.integers(0, 9)}),
)
def test_every_wanted_partition_is_assigned_once_to_somebody_who_wants_it(
    name: str, wants: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    members = {member: sorted(topics) for member, topics in wants.items()}
    result = ASSIGNORS[name](members, partitions)
    dealt = Counter(each for share in result.values() for each in share)
    wanted = {topic for topics in wants.values() for topic in topics}
    assert dealt == Counter(TopicPartition(topic, i) for topic in wanted for i in range(partitions[topic]))
    assert all(each.topic in wants[member] for member, share in result.items() for each in share)


def test_bytes_come_back_as_they_were() -> None:
    share = [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("ü", 1)]
    assert read_assignment(write_assignment(share)) == share
    assert read_subscription(write_subscription(["b", "a", "ü"])) == ["a", "b", "ü"]
    assert read_assignment(b"") == []


def test_newer_versions_are_read_as_far_as_they_are_known() -> None:
    data = b"\x00\x03" + write_subscription(["a"])[2:] + b"\x00\x00\x00\x00\x00\x00\x00\x07"
    assert read_subscription(data) == ["a"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x09a",
        b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xff\x00\x00",
        b"\x00\x00\x00\x00\x00\x01\xff\xffaaaa",
    ],
)
def test_broken_bytes_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_subscription(data)
    with pytest.raises(ProtocolError):
        read_assignment(data)


@given(st.binary(max_size=60))
def test_no_bytes_do_worse_than_a_protocol_error(data: bytes) -> None:
    for read in (read_assignment, read_subscription):
        try:
            read(data)
        except ProtocolError:
            continue
