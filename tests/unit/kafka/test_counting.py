"""Where the errors of a response are found: in itself, or in the items of its lists."""

from __future__ import annotations

import pytest

from tailrace.kafka.counting import find_error
from tailrace.kafka.dispatch import served_apis
from tailrace.wire.kafka import Message, response_type
from tailrace.wire.kafka.messages.heartbeat import HeartbeatResponse
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def test_an_error_of_the_response_itself() -> None:
    assert find_error(HeartbeatResponse()) == 0
    assert find_error(HeartbeatResponse(error_code=27)) == 27


def commit_of(*codes: int) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(error_code=code) for code in codes]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize(("codes", "expected"), [((), 0), ((0, 0), 0), ((0, 25, 3), 25)])
def test_the_first_error_of_the_items(codes: tuple[int, ...], expected: int) -> None:
    assert find_error(commit_of(*codes)) == expected


def test_an_empty_response_of_every_api_has_no_error() -> None:
    for api in served_apis():
        if api.name not in ("Produce", "Fetch"):
            response: Message = response_type(api.key)()
            assert find_error(response) == 0
