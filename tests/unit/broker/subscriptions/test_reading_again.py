"""Messages that are read once more to be delivered again: each batch once, and a few ahead of members."""

from __future__ import annotations

import pytest

from tailrace.broker.feed import Feed
from tailrace.broker.partition import Partition
from tailrace.broker.subscriptions.retained import Retained
from tailrace.model import Offset
from tailrace.runtime import Supervisor
from tailrace.storage import Slice

from .rig import Inbox, Rig, play

AHEAD = 10


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retained, "put", lambda *_: None)
    monkeypatch.setattr("tailrace.broker.subscriptions.redelivery._AHEAD_MAX", AHEAD)


def count_fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that were fetched, as they are."""
    fetched: list[int] = []
    real = Feed.fetch

    async def fetch(self: Feed, offset: int) -> object:
        fetched.append(offset)
        return await real(self, offset)

    monkeypatch.setattr(Feed, "fetch", fetch)
    return fetched


async def hold_all(rig: Rig, count: int) -> Inbox:
    """A member that holds so many messages."""
    await rig.topic()
    ann = rig.join(await rig.subscribe(backoff_ms=0, backoff_ms_max=0, max_deliveries=0))
    await rig.publish(*[b"%d" % number for number in range(count)])
    await rig.wait_until(lambda: ann.has(count))
    return ann


def test_what_a_member_had_is_not_read_before_somebody_may_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = count_fetches(monkeypatch)

    async def scenario(rig: Rig) -> None:
        ann = await hold_all(rig, 100)
        ann.joined().leave()
        await rig.turns(500)
        assert fetched == []
        bob = rig.join(rig.broker.subscriptions.known("work"), "bob", credit=0)
        await rig.turns(500)
        assert fetched == list(range(AHEAD))
        bob.joined().set_credit(100)
        await rig.wait_until(lambda: bob.has(100))
        assert bob.offsets == fetched == list(range(100))

    play(scenario)


def test_large_ones_are_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.subscriptions.message_memory.SUBSCRIPTION_BYTES_MAX", 1_000)
    fetched = count_fetches(monkeypatch)

    async def scenario(rig: Rig) -> None:
        ann = await hold_all(rig, 100)
        rig.join(rig.broker.subscriptions.known("work"), "bob", credit=0)
        ann.joined().leave()
        await rig.turns(500)
        assert 0 < len(fetched) < AHEAD

    play(scenario)


def test_what_fails_again_and_again_is_read_again_and_again() -> None:
    async def scenario(rig: Rig) -> None:
        ann = await hold_all(rig, 50)
        for _ in range(3):
            assert ann.nack(*range(50)) == 50
            ann.got.clear()
            await rig.wait_until(lambda: ann.has(50))
        assert await ann.ack(*range(50)) == 50

    play(scenario)


def test_what_is_settled_while_it_waits_makes_room_for_others() -> None:
    async def scenario(rig: Rig) -> None:
        ann = await hold_all(rig, 50)
        bob = rig.join(rig.broker.subscriptions.known("work"), "bob", credit=0)
        ann.joined().leave()
        await rig.turns(500)
        assert await bob.ack(*range(AHEAD)) == AHEAD  # everything that was read, which he had done after all
        bob.joined().set_credit(100)
        await rig.wait_until(lambda: bob.has(40))
        assert bob.offsets == list(range(AHEAD, 50))

    play(scenario)


def test_a_batch_is_read_once_for_all_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        for _ in range(3):
            await rig.publish(*[b"%d" % number for number in range(10)])
        reads: list[int] = []
        real = Partition.read

        async def read(
            self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
        ) -> Slice:
            reads.append(offset)
            return await real(self, offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(Partition, "read", read)
        feed = Feed(rig.partition(), 0, tasks=Supervisor(lambda _: None), wake=lambda: None)
        for offset in (0, 1, 7, 9, 10, 29, 3, 4):
            record = await feed.fetch(offset)
            assert record is not None and record.offset == offset
        assert reads == [0, 10, 29, 3]  # going back begins anew
        feed.end_fetching()
        assert await feed.fetch(5) is not None
        assert reads[-1] == 5

    play(scenario)
