"""An internal topic over the topics of a broker: made once, compacted, hidden; appended to and read back."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.conftest import Play, Rig

from tailrace.broker.internal.topic import InternalTopic
from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.records import build_batch, read_batch


def _topic(rig: Rig, *, partitions: int = 2) -> InternalTopic:
    return InternalTopic(rig.topics, name="__state", partitions=partitions, segment_bytes=1 << 20)


def test_before_it_is_made_there_is_nothing(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        assert log.partitions == 0
        assert not log.leads(0)
        with pytest.raises(BrokerError) as refused:
            log.sequence(0, [(0, b"k", b"v", ())])
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(scenario)


def test_it_is_made_compacted_and_internal(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        await log.ensure()
        topic = rig.topics.get("__state")
        assert topic is not None and topic.internal
        assert topic.partitions[0].settings.compact
        assert topic.configs["segment.bytes"] == str(1 << 20)
        assert log.partitions == 2
        assert log.leads(1)
        assert not log.leads(2)

    play(scenario)


def test_two_who_make_it_at_once_both_succeed(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.gather(_topic(rig).ensure(), _topic(rig, partitions=3).ensure())
        assert _topic(rig).partitions in (2, 3)

    play(scenario)


def test_what_was_appended_is_read_in_its_partition_only(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        await log.ensure()
        log.sequence(1, [(5, b"a", b"1", ()), (5, b"b", None, ())])
        log.sequence(1, [(6, b"a", b"2", ())])
        read = [record async for batch in log.read(1) for record in batch.records()]
        assert [(record.key, record.value) for record in read] == [(b"a", b"1"), (b"b", None), (b"a", b"2")]
        assert [batch async for batch in log.read(0)] == []

    play(scenario)


def test_more_than_one_read_brings_is_read_to_its_end(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        await log.ensure()
        for number in range(4):
            log.sequence(0, [(0, b"%d" % number, bytes(700_000), ())])
        read = [record.key async for batch in log.read(0) for record in batch.records()]
        assert read == [b"0", b"1", b"2", b"3"]

    play(scenario)


def test_what_is_visible_is_read_up_to_the_high_watermark(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        await log.ensure()
        log.sequence(0, [(0, b"a", b"1", ()), (0, b"b", b"2", ())])
        topic = rig.topics.get(log.name)
        assert topic is not None
        place = topic.partitions[0]
        place.append(read_batch(build_batch([(0, b"\0\0\0\0", b"marker", ())], control=True)))
        log.sequence(0, [(0, b"c", b"3", ())])
        await place.delete_records(1)
        place.last_stable_offset = Offset(2)
        read = [record.key async for batch in log.read(0) for record in batch.records()]
        assert read == [b"b", b"c"]

    play(scenario)


def test_a_partition_that_it_does_not_have_cannot_be_read(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        log = _topic(rig)
        await log.ensure()
        with pytest.raises(BrokerError):
            async for _ in log.read(7):
                pass

    play(scenario)
