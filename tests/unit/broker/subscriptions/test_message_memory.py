"""What subscriptions keep of their messages: given back by the last member, and bounded for a node."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import pytest

from tailrace.broker.subscriptions import Subscription
from tailrace.broker.subscriptions.message_memory import FLOOR_BYTES, SUBSCRIPTION_BYTES_MAX, MessageMemory
from tailrace.records import Record

from .rig import Rig, play, play_lives

BIG = bytes(100_000)
MIB = 1 << 20


def records_in_memory() -> int:
    """How many decoded records of BIG anything still refers to."""
    gc.collect()
    return sum(isinstance(each, Record) and each.value == BIG for each in gc.get_objects())


async def leave_messages(rig: Rig, name: str, *, mode: str = "shared") -> Subscription:
    """A subscription whose only member held and looked at messages, and left."""
    work = await rig.subscribe(name, mode=mode)
    ann = rig.join(work, credit=20)
    await rig.wait_until(lambda: ann.has(20))
    ann.joined().leave()
    await rig.turns()
    return work


@pytest.mark.parametrize("mode", ["shared", "key_shared", "failover"])
def test_a_subscription_without_members_keeps_no_message_of_a_durable_log(mode: str, tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        await rig.publish_keys(*[(b"%d" % number, BIG) for number in range(40)])
        work = await leave_messages(rig, "work", mode=mode)
        await rig.turns()
        assert records_in_memory() == 0
        assert work.retained_bytes == 0 and rig.broker.subscriptions.memory.bytes == 0
        assert work.unacked == 20
        bob = rig.join(work, "bob", credit=100)
        await rig.wait_until(lambda: bob.has(40))
        assert sorted(bob.offsets) == list(range(40))
        assert [each.count for each in bob.got] == [2 if each.record.offset < 20 else 1 for each in bob.got]

    play_lives(tmp_path, life)


def test_a_member_that_comes_back_acknowledges_what_it_had_before(tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(*[b"v"] * 10)
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(10))
        ann.joined().leave()
        await rig.turns()
        bob = rig.join(work, "bob", credit=0)
        assert await bob.ack(*range(8)) == 8
        bob.joined().set_credit(10)
        await rig.wait_until(lambda: bob.has(2))
        assert bob.offsets == [8, 9]

    play_lives(tmp_path, life)


def test_a_key_keeps_its_order_when_all_members_leave_and_one_comes(tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared", max_deliveries=0)
        await rig.publish_keys(*[(b"ab"[n % 2 : n % 2 + 1], b"%d" % n) for n in range(20)])
        for _ in range(3):
            ann = rig.join(work)
            await rig.wait_until(partial(ann.has, 2))
            assert ann.offsets == [0, 1]
            ann.joined().leave()
            await rig.turns()
        bob = rig.join(work, "bob")
        for step in range(10):
            await rig.wait_until(partial(bob.has, 2 * step + 2))
            await bob.ack(*bob.offsets[2 * step :])
        assert [each for each in bob.offsets if each % 2] == list(range(1, 20, 2))
        assert [each for each in bob.offsets if each % 2 == 0] == list(range(0, 20, 2))

    play_lives(tmp_path, life)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_key_goes_on_after_the_acknowledgement_of_what_several_members_left(
    members: int, tmp_path: Path
) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        await rig.publish_keys((b"a", b"0"), (b"a", b"1"))
        work = await rig.subscribe(mode="key_shared")
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(1))
        ann.joined().leave()
        for _ in range(members - 1):
            idle = rig.join(work, "idle", credit=0)  # for it the message is read again
            await rig.wait_until(lambda: rig.broker.subscriptions.memory.bytes)
            idle.joined().leave()
            await rig.turns()
        assert await ann.ack(0) == 1
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.has(1))
        assert bob.offsets == [1]

    play_lives(tmp_path, life)


def test_what_waits_for_its_backoff_comes_to_the_next_member(tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        await rig.publish(b"a", b"b")
        work = await rig.subscribe(backoff_ms=1_000, backoff_ms_max=1_000)
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(2))
        ann.nack(0)
        ann.joined().leave()
        await rig.advance(2_000)
        assert rig.broker.subscriptions.memory.bytes == 0
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.has(2))
        assert sorted(bob.offsets) == [0, 1]

    play_lives(tmp_path, life)


def test_a_key_waits_for_its_message_whose_backoff_goes_on_without_members(tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic()
        await rig.publish_keys((b"a", b"0"), (b"a", b"1"), (b"b", b"2"))
        work = await rig.subscribe(mode="key_shared", backoff_ms=1_000, backoff_ms_max=1_000)
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(2))
        ann.nack(0)
        ann.joined().leave()
        await rig.turns()
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.got)
        await rig.turns()
        assert bob.offsets == [2]
        rig.clock.advance(1_000)
        work.wake()
        await rig.wait_until(lambda: bob.has(2))
        assert bob.offsets == [2, 0]
        await bob.ack(0)
        await rig.wait_until(lambda: bob.has(3))
        assert bob.offsets == [2, 0, 1]

    play_lives(tmp_path, life)


def test_messages_in_order_of_time_are_taken_up_where_they_were_left(tmp_path: Path) -> None:
    async def life(rig: Rig) -> None:
        await rig.topic(partitions=3)
        for number in range(12):
            await rig.publish(b"%d" % number, partition=number % 3)
            rig.clock.advance(10)
        work = await rig.subscribe(order="timestamp")
        ann = rig.join(work, credit=5)
        await rig.wait_until(lambda: ann.has(5))
        await rig.turns()
        ann.joined().leave(failed=False)
        await rig.turns()
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.has(12))
        assert sorted(bob.values, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(12)]

    play_lives(tmp_path, life)


def test_subscriptions_of_a_log_in_memory_share_one_bound() -> None:
    async def scenario(rig: Rig) -> None:
        memory = rig.broker.subscriptions.memory
        memory.bytes_max = 4 * MIB
        await rig.topic()
        await rig.publish(*[BIG] * 20)
        left = [await leave_messages(rig, f"work-{number}") for number in range(5)]
        assert memory.bytes < memory.bytes_max + 2 * MIB
        kept = [each.retained_bytes for each in left]
        assert kept[-1] > MIB and kept[0] == 0, "the least recently used one is the first to forget"
        bob = rig.join(left[0], "bob")
        await rig.wait_until(lambda: bob.has(20))  # the ring has them still

    play(scenario)


def test_members_that_hold_messages_of_a_full_node_keep_theirs_and_others_go_on() -> None:
    async def scenario(rig: Rig) -> None:
        memory = rig.broker.subscriptions.memory
        memory.bytes_max = 2 * MIB
        await rig.topic()
        await rig.publish(*[BIG] * 40)
        greedy = rig.join(await rig.subscribe("greedy"), credit=40)
        await rig.turns(200)
        held = len(greedy.got)
        assert held >= 20
        modest = rig.join(await rig.subscribe("modest"), "modest", credit=40)
        for offset in range(40):
            await rig.wait_until(partial(modest.has, offset + 1))
            await modest.ack(offset)
        assert memory.bytes < memory.bytes_max + 2 * MIB

    play(scenario)


class Holder:
    """A subscription that forgets, or does not."""

    def __init__(self, memory: MessageMemory, *, left: int = 0) -> None:
        self._memory, self._left = memory, left
        self.forgot = 0

    def forget_messages(self) -> None:
        self.forgot += 1
        self._memory.report(self, self._left)


def test_the_least_recently_used_holder_forgets_first() -> None:
    memory = MessageMemory(10 * MIB)
    old, new, asking = Holder(memory), Holder(memory), Holder(memory)
    memory.report(old, 4 * MIB)
    memory.report(new, 4 * MIB)
    assert memory.allowance(asking) == SUBSCRIPTION_BYTES_MAX and not old.forgot
    memory.report(old, 6 * MIB)  # used again
    assert memory.allowance(asking) == SUBSCRIPTION_BYTES_MAX
    assert (old.forgot, new.forgot) == (0, 1) and memory.bytes == 6 * MIB


def test_where_holders_cannot_forget_each_keeps_a_floor() -> None:
    memory = MessageMemory(10 * MIB)
    stuck = [Holder(memory, left=MIB) for _ in range(100)]
    for each in stuck:
        memory.report(each, MIB)
    asking = Holder(memory)
    assert memory.allowance(asking) == FLOOR_BYTES
    assert 0 < sum(each.forgot for each in stuck) <= 16, "one turn does not ask all of them"
    assert memory.allowance(stuck[-1]) == FLOOR_BYTES
    assert not stuck[-1].forgot, "the one that asks is not told to forget"
