"""The pulls of one member, without a listener: who gets what, how they end, what the member still wants."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.broker.subscriptions import Delivery, Notice, Subscription
from tailrace.broker.subscriptions.pulling import Pull, Pulls

from .rig import Rig, play

LONG_MS = 3_600_000


class Asked(Pull):
    """A pull with a name, that keeps what it gets."""

    __slots__ = ("name", "offsets")

    def __init__(self, name: str, wanted: int) -> None:
        super().__init__(wanted)
        self.name = name
        self.offsets: list[int] = []


class Taker:
    """A recipient that pulls."""

    name = "taker"

    def __init__(self, subscription: Subscription, *, patience_s: float = 60.0) -> None:
        self.ended: list[str] = []
        self.stray: list[Delivery] = []
        self.last: Sequence[Delivery] = ()
        self.pulls: Pulls[Asked] = Pulls(
            subscription, self, patience_s=patience_s, on_end=lambda pull: self.ended.append(pull.name)
        )

    @property
    def wanted(self) -> int:
        return self.pulls.member.wanted

    def ask(self, name: str, count: int, *, wait_ms: int = LONG_MS) -> Asked:
        pull = Asked(name, count)
        self.pulls.ask(pull, wait_ms=wait_ms)
        return pull

    def is_open(self) -> bool:
        return True

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.last = deliveries
        self.note(deliveries, self.pulls.share_out(deliveries))
        self.pulls.settle()

    def note(self, deliveries: Sequence[Delivery], shares: Sequence[Asked | None]) -> None:
        for delivery, pull in zip(deliveries, shares, strict=True):
            if pull is None:
                self.stray.append(delivery)
            else:
                pull.offsets.append(delivery.record.offset)

    def notice(self, notice: Notice) -> None:
        raise AssertionError(notice)


async def taker_of(rig: Rig, *, messages: int = 0, patience_s: float = 60.0, **settings: str) -> Taker:
    await rig.topic()
    subscription = await rig.subscribe(**settings)
    if messages:
        await rig.publish(*(b"%d" % number for number in range(messages)))
    return Taker(subscription, patience_s=patience_s)


def test_a_pull_ends_when_it_is_full() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=5)
        pull = taker.ask("a", 3)
        await rig.wait_until(lambda: taker.ended == ["a"])
        assert (pull.offsets, pull.missing, taker.wanted) == ([0, 1, 2], 0, 0)
        await rig.turns()
        assert len(taker.pulls) == 0
        assert taker.pulls.member.held == 3

    play(scenario)


def test_a_pull_that_has_got_something_does_not_wait_for_more() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        pull = taker.ask("a", 10)
        await rig.turns()
        assert taker.ended == []
        await rig.publish(b"first")
        await rig.wait_until(lambda: taker.ended == ["a"])
        assert (pull.offsets, taker.wanted) == ([0], 0)
        await rig.publish(b"second")
        await rig.turns()
        assert taker.pulls.member.held == 1

    play(scenario)


@pytest.mark.parametrize("wait_ms", [0, 20])
def test_a_pull_ends_when_its_time_is_over(wait_ms: int) -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        taker.ask("a", 10, wait_ms=wait_ms)
        await rig.wait_until(lambda: taker.ended == ["a"])
        assert taker.wanted == 0
        await rig.publish(b"late")
        await rig.turns()
        assert taker.pulls.member.held == 0

    play(scenario)


def test_pulls_are_served_and_end_in_the_order_of_asking() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        first, second, third = taker.ask("a", 2), taker.ask("b", 2), taker.ask("c", 2)
        await rig.publish(*[b"x"] * 5)
        await rig.wait_until(lambda: len(taker.ended) == 3)
        assert taker.ended == ["a", "b", "c"]
        assert [first.offsets, second.offsets, third.offsets] == [[0, 1], [2, 3], [4]]

    play(scenario)


def test_a_pull_that_is_dropped_leaves_the_others_what_they_want() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        first, second = taker.ask("a", 3), taker.ask("b", 2)
        assert taker.wanted == 5
        assert taker.pulls.drop(first)
        assert taker.wanted == 2
        assert not taker.pulls.drop(first)
        taker.pulls.end(first)
        await rig.publish(*[b"x"] * 5)
        await rig.wait_until(lambda: taker.ended == ["b"])
        assert (first.offsets, second.offsets) == ([], [0, 1])

    play(scenario)


def test_a_dropped_pull_does_not_end_later() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        first, _ = taker.ask("a", 1, wait_ms=1), taker.ask("b", 1, wait_ms=20)
        taker.pulls.drop(first)
        await rig.wait_until(lambda: bool(taker.ended))
        assert taker.ended == ["b"]

    play(scenario)


def test_what_the_member_has_already_goes_to_pulls_that_then_want_less() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=2)
        taker.ask("a", 2)
        await rig.wait_until(lambda: taker.ended == ["a"])
        given = taker.last
        second, third = taker.ask("b", 1), taker.ask("c", 2)
        assert taker.wanted == 3
        taker.note(given, taker.pulls.hand_on(given))
        assert (second.offsets, third.offsets, taker.wanted) == ([0], [1], 1)
        taker.pulls.settle()
        assert taker.ended == ["a", "b"]
        await rig.publish(b"new")
        await rig.wait_until(lambda: taker.ended == ["a", "b", "c"])
        assert (third.offsets, taker.wanted) == ([1, 2], 0)

    play(scenario)


def test_what_nobody_waits_for_is_handed_back() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=2)
        taker.ask("a", 2)
        await rig.wait_until(lambda: taker.ended == ["a"])
        assert taker.pulls.hand_on(taker.last) == [None, None]
        assert taker.wanted == 0

    play(scenario)


def test_all_pulls_can_be_ended() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig)
        taker.ask("a", 1)
        taker.ask("b", 1)
        taker.pulls.end_all()
        assert (taker.ended, taker.wanted, len(taker.pulls)) == (["a", "b"], 0, 0)

    play(scenario)


# ---- at most once: chosen is not yet delivered


class HeldCursors:
    """Nothing of a cursor becomes durable until `settle`, or the end of the block."""

    def __init__(self, rig: Rig) -> None:
        self._logs = rig.cursor_logs()

    def __enter__(self) -> HeldCursors:
        for log in self._logs:
            log.hold()
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()

    def settle(self) -> None:
        for log in self._logs:
            log.settle()


def test_a_pull_does_not_end_while_messages_are_on_their_way_to_it() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=2, delivery="at_most_once")
        with HeldCursors(rig) as cursors:
            pull = taker.ask("a", 5, wait_ms=0)
            await rig.wait_until(lambda: pull.wanted == 2)  # its time is over, and two are coming
            assert (taker.ended, taker.wanted) == ([], 0)
            cursors.settle()
            await rig.wait_until(lambda: taker.ended == ["a"])
            assert pull.offsets == [0, 1]

    play(scenario)


def test_a_pull_does_not_wait_for_ever_for_what_is_on_its_way() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=2, delivery="at_most_once", patience_s=0.01)
        with HeldCursors(rig) as cursors:
            pull = taker.ask("a", 5, wait_ms=0)
            await rig.wait_until(lambda: taker.ended == ["a"])
            assert pull.offsets == []
            cursors.settle()
            await rig.wait_until(lambda: len(taker.stray) == 2)

    play(scenario)


def test_what_is_on_its_way_to_a_pull_that_is_gone_is_for_the_next_one() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=5, delivery="at_most_once")
        with HeldCursors(rig) as cursors:
            gone = taker.ask("gone", 2)
            await rig.wait_until(lambda: taker.pulls.member.held == 2)
            taker.pulls.drop(gone)
            assert taker.wanted == 0
            pull = taker.ask("a", 3)
            assert taker.wanted == 1  # two of its three are coming
            await rig.turns()
            cursors.settle()
            await rig.wait_until(lambda: taker.ended == ["a"])
            assert (pull.offsets, taker.stray, taker.wanted) == ([0, 1, 2], [], 0)

    play(scenario)


def test_what_is_on_its_way_to_a_pull_that_is_gone_is_for_one_that_waits_already() -> None:
    async def scenario(rig: Rig) -> None:
        taker = await taker_of(rig, messages=2, delivery="at_most_once")
        with HeldCursors(rig) as cursors:
            gone, other = taker.ask("gone", 2), taker.ask("a", 2)
            await rig.wait_until(lambda: taker.pulls.member.held == 2)
            taker.pulls.drop(gone)
            cursors.settle()
            await rig.wait_until(lambda: taker.ended == ["a"])
            assert (other.offsets, taker.stray, taker.wanted) == ([0, 1], [], 0)

    play(scenario)
