"""A tail without a socket, against a ring whose turns the test holds back: from the log into the ring."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from tests.poison import undecodable
from tests.unit.http.conftest import partition_of
from tests.unit.http.live.rig import ALICE, DEADLINE_S, TOPIC, Rig, play
from websockets.exceptions import InvalidStatus

from tailrace.broker.gate import Gate
from tailrace.http import HttpConfig
from tailrace.http.live.entry import Filter
from tailrace.http.live.tail import Portion, Tail, TailEnded, TailFailed
from tailrace.model import Offset
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.model.session import Principal, Session
from tailrace.records import build_batch, crc32c, read_batch

SMALL = HttpConfig(ring_records_max=5)


def watch(rig: Rig, *, positions: dict[int, int] | None = None, partition: int | None = None) -> Tail:
    return rig.watch(filter=Filter(partition=partition), positions=positions)


async def collect(tail: Tail, total: int) -> tuple[list[int], int]:
    """Offsets until, with those that were skipped, there were so many; the loop turns only if it must."""
    offsets: list[int] = []
    skipped = 0
    while len(offsets) + skipped < total:
        portion = await tail.wait_portion(10)
        if portion is not None:
            skipped += portion.skipped
            skipped += sum(entry.weight for entry in portion.run.entries if entry.json is None)
            offsets += [entry.offset for entry in portion.run.entries if entry.json is not None]
    return offsets, skipped


async def drained(rig: Rig, end: int, *, partition: int = 0) -> None:
    """The ring has taken everything up to an offset."""
    (ring,) = rig.tails.rings
    await rig.wait_until(lambda: ring.position(partition) >= end)


def hold(rig: Rig) -> None:
    """The rings have no turn until `release`."""
    assert rig.tails._timer is None, "nothing is on its way"
    rig.tails._rest_until = asyncio.get_running_loop().time() + 3600


def release(rig: Rig) -> None:
    rig.tails._rest_until = 0.0
    if rig.tails._timer is not None:
        rig.tails._timer.cancel()
        rig.tails._set_timer()


def test_one_that_catches_up_goes_back_to_the_log_where_the_ring_leaps() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(*[b"x"] * 10)
        with watch(rig):
            hold(rig)
            rig.publish(*[b"x"] * 10)
            with watch(rig, positions={0: 0}) as tail:
                assert await collect(tail, 20) == (list(range(20)), 0)
                assert await tail.wait_portion(0.001) is None  # it is in the ring, and ahead of it
                rig.publish(*[b"x"] * 2000)
                release(rig)
                await drained(rig, 2020)  # by a leap
                assert await collect(tail, 2000) == (list(range(20, 2020)), 0)

    play(scenario, HttpConfig(ring_records_max=600))


def test_one_that_catches_up_goes_back_to_the_log_where_the_ring_has_dropped_what_it_wants() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            rig.publish(*[b"x"] * 10)
            await drained(rig, 10)
            hold(rig)
            rig.publish(*[b"x"] * 10)
            with watch(rig, positions={0: 0}) as tail:
                assert await collect(tail, 20) == (list(range(20)), 0)
                portion = await tail.wait_portion(10)  # it is in the ring, and ahead of it
                assert portion is not None and not portion.run.entries
                rig.publish(*[b"x"] * 300)
                release(rig)
                await drained(rig, 320)
                assert await collect(tail, 300) == (list(range(20, 320)), 0)

    play(scenario, SMALL)


def test_the_newest_begins_behind_what_a_slow_ring_has_not_taken_yet() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            rig.publish(*[b"x"] * 3)
            with watch(rig) as tail:
                rig.publish(b"y")
                assert await collect(tail, 1) == ([3], 0)

    play(scenario, SMALL)


@pytest.mark.parametrize(("count", "shown"), [(300, 5), (2000, 5)])
def test_the_newest_counts_from_where_it_began(count: int, shown: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            rig.publish(*[b"x"] * 10)
            with watch(rig) as tail:
                rig.publish(*[b"x"] * count)
                await drained(rig, 10 + count)
                offsets, skipped = await collect(tail, count)
                assert offsets == list(range(10 + count - shown, 10 + count))
                assert skipped == count - shown
                rig.publish(b"y")
                assert await collect(tail, 1) == ([10 + count], 0)

    play(scenario, SMALL)


@pytest.mark.parametrize("partition", [None, 0])
def test_one_that_is_live_counts_what_was_dropped(partition: int | None) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        with watch(rig, partition=partition) as tail:
            for number in range(1, 11):
                rig.publish(b"x", b"x")
                await drained(rig, 2 * number)
                rig.publish(b"other", partition=1)
                await drained(rig, number, partition=1)
            total = 30 if partition is None else 20
            offsets, skipped = await collect(tail, total)
            assert skipped == total - len(offsets) > 0
            assert offsets[-1] == (9 if partition is None else 19)

    play(scenario, SMALL)


@pytest.mark.parametrize("partition", [None, 0])
def test_what_is_missed_in_several_ways_is_added_up(partition: int | None) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig, partition=partition) as tail:
            rig.publish(*[b"x"] * 20)
            await drained(rig, 20)
            tail._fall_out()  # out of the ring, which is not told before the next portion
            missed = tail._skipped
            assert missed > 0
            tail.pause(True)
            rig.publish(*[b"x"] * 30)
            await drained(rig, 50)
            tail.pause(False)
            assert tail._skipped == 50
            rig.publish(b"y")
            assert await collect(tail, 51) == ([50], 50)

    play(scenario, SMALL)


@pytest.mark.parametrize("partition", [None, 0])
def test_what_falls_out_of_the_ring_after_a_pause_is_added_to_what_passed(partition: int | None) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig, partition=partition) as tail:
            tail.pause(True)
            rig.publish(*[b"x"] * 30)
            await drained(rig, 30)
            tail.pause(False)
            rig.publish(*[b"x"] * 20)
            await drained(rig, 50)
            assert await collect(tail, 50) == ([45, 46, 47, 48, 49], 45)

    play(scenario, SMALL)


def test_pauses_while_the_ring_is_behind_are_added_up() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            hold(rig)
            rig.publish(*[b"x"] * 3)
            with watch(rig) as tail:
                for count in (5, 4):
                    tail.pause(True)
                    rig.publish(*[b"x"] * count)
                    tail.pause(False)
                release(rig)
                rig.publish(b"y")
                assert await collect(tail, 10) == ([12], 9)

    play(scenario)


def test_what_is_missed_before_it_is_live_is_added_up() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            rig.publish(*[b"x"] * 3)
            with watch(rig) as tail:  # behind what the ring has not taken
                rig.publish(*[b"x"] * 20)
                await drained(rig, 23)
                tail._fall_out()
                first = tail._skipped
                assert first > 0
                rig.publish(*[b"x"] * 20)
                await drained(rig, 43)
                tail._fall_out()
                assert tail._skipped > first
                offsets, skipped = await collect(tail, 40)
                assert len(offsets) + skipped == 40

    play(scenario, SMALL)


def test_batches_that_cannot_be_decoded_are_added_up_in_the_log() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        partition = partition_of(rig.broker, TOPIC, 0)
        for count in (2, 3, 4):
            partition.append(read_batch(undecodable(count, time_ms=rig.broker.clock.now_ms())))
        rig.publish(b"x")
        with watch(rig, positions={0: 0}) as tail:
            assert await collect(tail, 10) == ([9], 9)

    play(scenario)


def test_batches_that_cannot_be_decoded_are_added_up_in_one_turn_of_the_ring() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as tail:
            hold(rig)
            partition = partition_of(rig.broker, TOPIC, 0)
            for count in (2, 3, 4):
                partition.append(read_batch(undecodable(count, time_ms=rig.broker.clock.now_ms())))
            rig.publish(b"x")
            release(rig)
            assert await collect(tail, 10) == ([9], 9)

    play(scenario)


def test_what_all_tails_show_is_made_once() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as first, watch(rig) as second:
            rig.publish(b"x", b"y")
            await drained(rig, 2)
            portions: list[Portion | None] = [await each.wait_portion(10) for each in (first, second)]
            assert portions[0] is not None and portions[1] is not None
            assert portions[0].run is portions[1].run

    play(scenario)


def test_a_record_larger_than_the_ring_is_shown() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as tail:
            rig.publish(b"a")
            rig.publish(b"x" * 100_000)
            await drained(rig, 2)
            (ring,) = rig.tails.rings
            assert len(ring) == 1
            assert await collect(tail, 2) == ([1], 1)

    play(scenario, HttpConfig(ring_bytes_max=1000))


def test_large_records_are_not_dropped_before_anybody_could_take_them() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.tails._schedule = lambda ring: None  # type: ignore[method-assign]  # the turn is the test's
        with watch(rig) as tail:
            for _ in range(40):
                rig.publish(b"x" * 200_000)
            partition = partition_of(rig.broker, TOPIC, 0)
            await partition.wait_acknowledged(partition.end_offset)
            (ring,) = rig.tails.rings
            assert ring.turn(), "the rest is for the next turns"
            assert ring.dropped == 0
            assert await collect(tail, len(ring)) == (list(range(len(ring))), 0)

    play(scenario)


@pytest.mark.parametrize("config", [SMALL, HttpConfig()], ids=["dropped", "kept"])
def test_one_that_is_paused_in_the_log_goes_on_there(config: HttpConfig) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            for number in range(4):
                rig.publish(*[b"x"] * 5)
                await drained(rig, 5 * number + 5)
            with watch(rig, positions={0: 0}) as tail:
                tail.pause(True)
                waiting = asyncio.ensure_future(tail.wait_portion(60))
                await asyncio.sleep(0)
                tail.pause(False)
                assert await waiting is None
                assert await collect(tail, 20) == (list(range(20)), 0)
                rig.publish(b"y")
                assert await collect(tail, 1) == ([20], 0)

    play(scenario, config)


def test_a_partition_that_is_added_counts_for_one_that_waits_for_a_slow_ring() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig):
            hold(rig)
            rig.publish(*[b"x"] * 10)
            partition = partition_of(rig.broker, TOPIC, 0)
            await partition.wait_acknowledged(partition.end_offset)
            with watch(rig) as tail:
                await rig.broker.topics.add_partitions(TOPIC, 2)
                rig.publish(*[b"x"] * 20, partition=1)
                release(rig)
                await drained(rig, 20, partition=1)
                offsets, skipped = await collect(tail, 20)
                assert (len(offsets), skipped) == (5, 15)

    play(scenario, SMALL)


def test_the_rings_of_many_topics_share_what_a_few_may_take() -> None:
    async def scenario(rig: Rig) -> None:
        names = [f"t{number}" for number in range(32)]
        for name in names:
            await rig.create(name=name)
        first = rig.watch(names[0])
        for _ in range(100):
            rig.publish(b"x" * 1000, topic=names[0])
        await drained(rig, 100)
        (ring,) = rig.tails.rings
        assert 40_000 < ring.bytes <= 50_000
        others = [rig.watch(name) for name in names[1:]]
        assert ring.bytes <= 25_000
        for tail in others:
            tail.close()
        assert ring.bytes_max == 50_000
        first.close()

    play(scenario, HttpConfig(ring_bytes_max=50_000))


def test_a_mistake_in_the_ring_ends_its_tails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as tail, watch(rig) as paused:
            paused.pause(True)
            monkeypatch.setattr("tailrace.http.live.ring.record_entry", lambda *_, **__: 1 / 0)
            rig.publish(b"x")
            assert await tail.wait_portion(10) is None
            for each in (tail, paused):  # or the next tail would find a ring that is over
                with pytest.raises(TailFailed, match="mistake"):
                    await each.wait_portion(10)

    play(scenario)
    assert "a tail could not be read on" in caplog.text


def test_a_mistake_in_the_ring_is_not_met_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as tail:
            monkeypatch.setattr("tailrace.http.live.ring.record_entry", lambda *_, **__: 1 / 0)
            rig.publish(b"x")
            assert await tail.wait_portion(10) is None
            (ring,) = rig.tails.rings
            rig.publish(b"y")
            partition = partition_of(rig.broker, TOPIC, 0)
            await partition.wait_acknowledged(partition.end_offset)
            assert not ring.turn()
            assert len(partition.waiters) == 0

    play(scenario)
    assert caplog.text.count("a tail could not be read on") == 1


def test_stopping_ends_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.http.live.tails._REST_S_MAX", 10 * DEADLINE_S)

    async def scenario(rig: Rig) -> None:
        await rig.create()
        with watch(rig) as tail:
            rig.publish(b"x")
            portion = await tail.wait_portion(10)
            assert portion is not None
            resting = asyncio.ensure_future(tail.rest(portion, messages=10_000_000))
            await asyncio.sleep(0)
            assert not resting.done()
            tail.stop("enough")
            await resting  # which takes longer than this test may if nothing ended it
            with pytest.raises(TailEnded, match="enough"):
                await tail.wait_portion(10)

    play(scenario)


def test_records_that_make_no_sense_are_counted_where_the_log_is_read() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"a", b"b")
        broken = build_batch([(0, None, b"v", ())] * 3)
        broken[-1] = 14  # headers that the last of them does not have
        broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
        partition = partition_of(rig.broker, TOPIC, 0)
        partition.append(read_batch(broken))
        partition.append(read_batch(build_batch([(0, b"\0\0\0\0", b"v", ())], control=True)))
        rig.publish(b"c")
        with watch(rig, positions={0: 1}) as tail:
            assert await collect(tail, 5) == ([1, 2, 3, 6], 1)

    play(scenario)


def test_a_tail_ends_at_the_last_stable_offset() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        for _ in range(3):
            rig.publish(b"x", b"x")
        partition_of(rig.broker, TOPIC, 0).last_stable_offset = Offset(4)
        with watch(rig, positions={0: 1}) as tail:
            assert await collect(tail, 3) == ([1, 2, 3], 0)
            await tail.wait_portion(0.001)
            (ring,) = rig.tails.rings
            assert (ring.position(0), len(ring)) == (4, 0)
            rig.publish(b"y")  # which moves it
            assert await collect(tail, 3) == ([4, 5, 6], 0)

    play(scenario)


# ---- whose tail it is


def test_a_tail_belongs_to_the_session_that_opened_it() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        bob = replace(ALICE, principal=Principal("User", "bob"))
        with rig.watch() as first, rig.watch(session=bob) as second:
            assert (first.access.session, second.access.session) == (ALICE, bob)
            assert len(rig.tails.rings) == 1  # which is nobody's
            rig.publish(b"x")
            assert await collect(first, 1) == await collect(second, 1) == ([0], 0)

    play(scenario)


def test_a_tail_needs_the_right_to_read() -> None:
    asked: list[tuple[Session, Operation, Resource]] = []

    def refuse(session: Session, operation: Operation, resource: Resource) -> bool:
        asked.append((session, operation, resource))
        return False

    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.service.gate = Gate(rig.broker, authorize=refuse)
        tail = await rig.ask(f"/api/v1/topics/{TOPIC}/tail")
        assert tail.status == 403
        assert json.loads(await tail.body())["error"]["code"] == "AUTHORIZATION_FAILED"
        with pytest.raises(InvalidStatus) as refused:
            async with rig.socket(f"/api/v1/topics/{TOPIC}/tail"):
                pass
        assert refused.value.response.status_code == 403
        anonymous = Session(host="127.0.0.1", listener="http")
        topic = Resource(ResourceKind.TOPIC, TOPIC)
        once = [(anonymous, Operation.READ, topic), (anonymous, Operation.DESCRIBE, topic)]
        assert asked == once * 2, "to describe: whether the refusal may say how to allow it"
        assert not rig.tails.rings

    play(scenario)
