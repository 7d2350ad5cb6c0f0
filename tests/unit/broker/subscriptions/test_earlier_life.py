"""Acknowledgements of what an earlier life of the broker delivered: they count, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.machine import PartitionMachine, Rules, Settled, State
from tailrace.testing import FakeClock

from .rig import DEADLINE_S, Rig, killed_copy, opened

RULES = Rules(ack_timeout_ms=100, max_deliveries=3, backoff_ms=10, backoff_ms_max=35)


def restored(
    position: int = 0, *, end: int, count_max: int = 100, failures: dict[int, int] | None = None
) -> PartitionMachine:
    """A machine as a start finds it, with a log that goes to `end`."""
    made = PartitionMachine(Cursor(position), rules=RULES, failures=failures)
    made.expect_earlier(end=end, count_max=count_max)
    return made


def test_what_may_have_been_delivered_before_is_done() -> None:
    made = restored(2, end=10)
    assert made.ack([(2, 3), (5, 7)], epoch=0) == [Settled(2, None), Settled(5, None), Settled(6, None)]
    assert made.cursor == Cursor(3, [(5, 7)])
    assert made.ack([(2, 3), (5, 7)], epoch=0) == []


def test_what_is_done_already_does_not_count_again() -> None:
    made = PartitionMachine(Cursor(2, [(3, 5)]), rules=RULES)
    made.expect_earlier(end=10, count_max=2)
    assert made.ack([(0, 6)], epoch=0) == [Settled(2, None), Settled(5, None)]
    assert made.cursor == Cursor(6)


def test_it_is_told_to_the_durable_cursor_with_its_failures() -> None:
    made = restored(0, end=10, failures={4: 1})
    made.ack([(4, 5)], epoch=0)
    changes = made.take_changes()
    assert changes is not None and (changes.ranges, changes.failures) == (((4, 5),), {4: 0})


@pytest.mark.parametrize(("start", "end"), [(10, 11), (0, 2), (20, 30)])
def test_what_cannot_have_been_delivered_before_is_not_touched(start: int, end: int) -> None:
    made = restored(2, end=10)
    assert made.ack([(start, end)], epoch=0) == []
    assert made.cursor == Cursor(2)


def test_a_machine_without_an_earlier_life_does_not_touch_what_is_available() -> None:
    made = PartitionMachine(Cursor(0), rules=RULES)
    assert made.ack([(0, 10)], epoch=0) == []


def test_another_epoch_changes_nothing_and_a_seek_forgets_the_earlier_life() -> None:
    made = restored(0, end=10)
    assert made.ack([(3, 4)], epoch=1) == []
    made.seek(0)
    assert made.ack([(3, 4)], epoch=1) == []


def test_what_is_dead_stays_dead_and_what_is_in_flight_is_settled_once() -> None:
    made = restored(0, end=10, failures={1: 3})
    made.deliver(0, member=7, now_ms=0)
    assert made.ack([(0, 3)], epoch=0) == [Settled(0, 7), Settled(2, None)]
    assert made.state_of(1) is State.DEAD


def test_no_more_are_taken_than_could_have_been_under_way() -> None:
    made = restored(0, end=10**12, count_max=3)
    assert [each.offset for each in made.ack([(5, 10**12)], epoch=0)] == [5, 6, 7]
    assert made.ack([(100, 10**12)], epoch=0) == []
    assert made.cursor == Cursor(0, [(5, 8)])


Life = Callable[[Rig], Awaitable[None]]


def play_kill(path: Path, before: Life, after: Life) -> None:
    """Run a scenario, kill the broker at its end, and run another in the next life."""

    async def main() -> None:
        clock = FakeClock()
        async with opened(path / "first", clock) as rig:
            await before(rig)
            killed_copy(rig, path / "killed")
        async with opened(path / "killed", clock) as rig:
            await after(rig)

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
@pytest.mark.parametrize("joins_first", [False, True])
def test_an_acknowledgement_that_was_on_its_way_counts_in_the_next_life(
    tmp_path: Path, mode: str, joins_first: bool
) -> None:
    async def before(rig: Rig) -> None:
        await rig.topic()
        subscription = await rig.subscribe(mode=mode)
        ann = rig.join(subscription)
        await rig.publish(b"a", b"b", b"c", key=b"k")
        await rig.wait_until(lambda: 0 in ann.offsets)

    async def after(rig: Rig) -> None:
        subscription = rig.broker.subscriptions.known("work")
        deaf = rig.join(subscription, "deaf", credit=0)  # whoever joins makes it read ahead
        if joins_first:
            await rig.turns()
        assert await deaf.ack(0) == 1
        deaf.joined().leave()
        ann = rig.join(subscription)
        for wanted in (1, 2):
            await rig.wait_until(lambda wanted=wanted: wanted in ann.offsets)  # type: ignore[misc]
            await ann.ack(wanted)
        assert ann.offsets == [1, 2]

    play_kill(tmp_path, before, after)
