"""Tails by SSE over real sockets: the newest, history, going on, slow and many readers, and every end."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from tests.poison import undecodable
from tests.unit.http.conftest import partition_of
from tests.unit.http.live.rig import DEADLINE_S, TOPIC, Event, EventReader, Rig, play

from tailrace.broker.publishing import NewMessage
from tailrace.http import HttpConfig
from tailrace.http.live.entry import NAMED_PARTITIONS_MAX
from tailrace.records import read_batch

KIB = 1024
PATH = f"/api/v1/topics/{TOPIC}/tail"


def places(events: list[Event]) -> list[tuple[int, int]]:
    return [(event.data["partition"], event.data["offset"]) for event in events]


def values(events: list[Event]) -> list[str]:
    return [event.data["value"] for event in events]


async def refusal(reader: EventReader) -> dict[str, str]:
    error: dict[str, str] = json.loads(await reader.body())["error"]
    return error


# ---- what is shown


def test_a_tail_shows_what_is_published_from_now_on() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"before")
        tail = await rig.tail()
        assert tail.headers["content-type"].startswith("text/event-stream")
        rig.publish(NewMessage(b"k", b"v", [("h", b"x")]))
        event = await tail.next()
        assert (event.kind, event.id) == ("record", rig.event_id("0:1"))
        assert event.data.pop("timestamp") > 0
        assert event.data == {
            "topic": TOPIC,
            "partition": 0,
            "offset": 1,
            "key": "k",
            "value": "v",
            "headers": [{"name": "h", "value": "x"}],
        }

    play(scenario)


def test_a_value_with_line_ends_stays_one_event() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tail = await rig.tail()
        rig.publish(b"a\n\ndata: b\r\n", b"\xff\x00")
        first, second = await tail.take(2)
        assert first.data["value"] == "a\n\ndata: b\r\n"
        assert (second.data["value"], second.data["value_encoding"]) == ("/wA=", "base64")

    play(scenario)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?offset=-1", [(1, 1)]),
        ("?offset=-3", [(0, 1), (1, 0), (1, 1)]),
        ("?offset=-1&partition=0", [(0, 1)]),
    ],
)
def test_the_last_records_are_those_of_all_partitions_together(
    query: str, expected: list[tuple[int, int]]
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        rig.publish(b"0", b"1")
        began_ms = rig.broker.clock.now_ms()
        await rig.wait_until(lambda: rig.broker.clock.now_ms() > began_ms)
        rig.publish(b"0", b"1", partition=1)
        assert places(await (await rig.tail(query)).take(len(expected))) == expected

    play(scenario)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?offset=earliest", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("?offset=-99", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("?partition=1&offset=1", [(1, 1)]),
        ("?partition=0&offset=2", []),
        ("?partition=1&offset=earliest", [(1, 0), (1, 1)]),
        ("?ts=1h", [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ("?ts=2999-01-01T00:00", []),
        ("?offset=latest", []),
    ],
)
def test_a_tail_begins_where_it_is_asked_to(query: str, expected: list[tuple[int, int]]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        rig.publish(b"0", b"1")
        rig.publish(b"0", b"1", partition=1)
        tail = await rig.tail(query)
        shown = await tail.take(len(expected))
        assert sorted(places(shown)) == expected
        rig.publish(b"live", partition=0)
        rig.publish(b"live", partition=1)
        live = [(0, 2), (1, 2)] if "partition" not in query else [(int(query[11]), 2)]
        assert sorted(places(await tail.take(len(live)))) == live

    play(scenario)


def test_history_is_merged_by_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        for number in range(6):
            rig.publish(b"%d" % number, partition=number % 2)
            stamped = rig.broker.clock.now_ms()  # or a moment before: the next one is later in any case
            await rig.wait_until(lambda stamped=stamped: rig.broker.clock.now_ms() > stamped)  # type: ignore[misc]
        tail = await rig.tail("?offset=earliest")
        assert values(await tail.take(6)) == ["0", "1", "2", "3", "4", "5"]

    play(scenario)


@pytest.mark.parametrize("begin", ["", "&offset=earliest"])
def test_filters_hold_for_history_and_for_what_is_new(begin: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()

        def publish() -> None:
            rig.publish(
                NewMessage(b"a", b"needle here"),
                NewMessage(b"needle", b"x"),
                NewMessage(b"a", b"hay"),
                NewMessage(None, None),
            )

        if begin:
            publish()
        text = await rig.tail("?contains=needle" + begin)
        key = await rig.tail("?key=a" + begin)
        both = await rig.tail("?key=a&contains=needle" + begin)
        if not begin:
            publish()
        assert [event.offset for event in await text.take(2)] == [0, 1]
        assert [event.offset for event in await key.take(2)] == [0, 2]
        assert [event.offset for event in await both.take(1)] == [0]
        publish()
        assert [event.offset for event in await text.take(2)] == [4, 5]
        assert [event.offset for event in await key.take(2)] == [4, 6]
        assert [event.offset for event in await both.take(1)] == [4]

    play(scenario)


def test_a_partition_alone_is_shown_alone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(3)
        tail = await rig.tail("?partition=1")
        for partition in (0, 1, 2, 1):
            rig.publish(b"x", partition=partition)
        shown = await tail.take(2)
        assert places(shown) == [(1, 0), (1, 1)]
        assert [event.id for event in shown] == [rig.event_id("1:0"), rig.event_id("1:1")]

    play(scenario)


def test_partitions_that_are_added_are_shown() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        live, old = await rig.tail(), await rig.tail("?offset=earliest")
        await rig.broker.topics.add_partitions(TOPIC, 3)
        rig.publish(b"new", partition=2)
        for tail in (live, old):
            assert places([await tail.next()]) == [(2, 0)]

    play(scenario)


def test_records_that_were_deleted_are_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(*[b"x"] * 10)
        rig.publish(b"last")
        partition = partition_of(rig.broker, TOPIC, 0)
        await partition.delete_records(10)
        tail = await rig.tail(Last_Event_ID=rig.event_id("0:3"))
        skipped, record = await tail.take(2)
        assert (skipped.kind, skipped.data) == ("skipped", {"count": 6})
        assert record.offset == 10

    play(scenario)


def test_history_of_many_batches_joins_what_is_live_without_gap_or_repetition() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(3)
        old, total = 3000, 3900
        published = 0

        def publish(count: int) -> None:
            nonlocal published
            for _ in range(count):
                rig.publish(b"%d" % published + b"x" * 200, partition=published % 3)
                published += 1

        watch = await rig.tail()  # which has the ring drop most of the history
        while published < old:
            publish(100)
            await watch.until(100)
        (ring,) = rig.tails.rings
        assert ring.dropped >= 2000
        tail = await rig.tail("?offset=earliest")
        shown: list[Event] = []
        while len(shown) < total:
            shown.append(await tail.next())
            assert shown[-1].kind == "record"
            if published < total:
                publish(1)
        for partition in range(3):
            offsets = [offset for each, offset in places(shown) if each == partition]
            assert offsets == list(range(total // 3))

    play(scenario, HttpConfig(ring_records_max=1000, stream_buffer_bytes_max=64 * KIB))


def test_what_the_ring_leapt_over_is_history_all_the_same() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        watch = await rig.tail()
        (ring,) = rig.tails.rings
        for _ in range(3):
            rig.publish(*[b"x"] * 2000)  # more than the ring follows
            _, skipped = await watch.until(2000)
            assert skipped > 1000
        assert ring.dropped == 0
        tail = await rig.tail("?offset=earliest")
        shown, skipped = await tail.until(6000)
        assert skipped == 0
        assert [event.offset for event in shown] == list(range(6000))

    play(scenario, HttpConfig(ring_records_max=1000))


def test_one_that_catches_up_goes_back_to_the_log_where_the_ring_leaps() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        watch = await rig.tail()
        for _ in range(40):
            rig.publish(*[b"x" * 10 * KIB] * 25)
            await watch.until(25)
        tail = await rig.tail("?offset=earliest", receive_bytes=4 * KIB)
        shown = await tail.take(10)
        tail.stop_reading()  # far from what is live: the rest is more than sockets hold
        for _ in range(5):
            rig.publish(*[b"x"] * 2000)
            await watch.until(2000)
        tail.go_on_reading()
        more, skipped = await tail.until(10_990)
        assert skipped == 0
        assert [event.offset for event in shown + more] == list(range(11_000))

    play(scenario, HttpConfig(ring_records_max=1000))


# ---- going on


@pytest.mark.parametrize("partitions", [1, 3, NAMED_PARTITIONS_MAX])
def test_a_client_that_comes_back_goes_on_where_it_was(partitions: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(partitions)
        total = 280
        tail = await rig.tail("?offset=earliest")
        seen: list[tuple[int, int]] = []
        for number in range(total):
            rig.publish(b"%d" % number, partition=number % partitions)
            if number % 40 == 39:  # break off somewhere in the middle of what is live, or of history
                seen += places(await tail.take(25))
                tail.close()
                tail = await rig.tail("?offset=earliest", Last_Event_ID=tail.last_id)
        while len(set(seen)) < total:
            seen += places([await tail.next()])
        assert len(seen) == total, "a record was shown twice"

    play(scenario)


def test_many_partitions_have_no_ids_but_one_of_them_has() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(NAMED_PARTITIONS_MAX + 1)
        rig.publish(b"0", b"1", partition=7)
        all_of_them = await rig.tail("?offset=earliest")
        assert [event.id for event in await all_of_them.take(2)] == ["", ""]
        one = await rig.tail("?offset=earliest&partition=7")
        assert (await one.next()).id == rig.event_id("7:0")
        again = await rig.tail("?offset=earliest&partition=7", Last_Event_ID=one.last_id)
        assert (await again.next()).id == rig.event_id("7:1")

    play(scenario)


def test_going_on_wins_over_where_the_address_says_to_begin() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"0", b"1", b"2")
        tail = await rig.tail("?offset=earliest", Last_Event_ID=rig.event_id("0:1"))
        assert (await tail.next()).offset == 2

    play(scenario)


@pytest.mark.parametrize(
    "shown", ["x", "0", "0:", "0:-5", "0:1,", "0:1,0:2", "0:1,1:2,1:3", "0:1@", "\u0661:1", "9" * 5000]
)
def test_an_id_that_is_none_is_refused(shown: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        for id in (rig.event_id(shown), shown, "0:1", "c53e/0:1", "/0:1"):
            reader = await rig.ask(PATH, Last_Event_ID=id)
            assert reader.status == 400
            assert "Last-Event-ID" in (await refusal(reader))["message"]

    play(scenario)


# ---- what is refused


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("?offset=5", 400, "partition"),
        ("?offset=soon", 400, "offset"),
        ("?offset=1.5&partition=0", 400, "offset"),
        ("?offset=9999999999999999999999&partition=0", 400, "offset"),
        ("?offset=7&partition=0", 416, "offset 7"),
        ("?partition=9", 404, "there is no 9"),
        ("?partition=-1", 400, "partition"),
        ("?partition=x", 400, "partition"),
        ("?ts=whenever", 400, "ts"),
        ("?ts=1h&offset=earliest", 400, "both"),
        ("?since=1h", 400, "since"),
        ("?key=a&key=b", 400, "twice"),
    ],
)
def test_a_tail_that_makes_no_sense_is_refused(query: str, status: int, word: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        reader = await rig.ask(PATH + query)
        assert reader.status == status
        assert word in (await refusal(reader))["message"]

    play(scenario)


def test_a_topic_that_does_not_exist_is_not_tailed() -> None:
    async def scenario(rig: Rig) -> None:
        reader = await rig.ask(PATH)
        assert reader.status == 404
        assert (await refusal(reader))["code"] == "TOPIC_NOT_FOUND"
        assert rig.broker.topics.get(TOPIC) is None

    play(scenario)


def test_more_streams_than_allowed_are_refused_until_one_ends() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        first = await rig.tail()
        reader = await rig.ask(PATH)
        assert reader.status == 503
        assert reader.headers["retry-after"]
        first.close()
        await rig.wait_until(lambda: rig.service.streams == 0)
        await rig.tail()

    play(scenario, HttpConfig(streams_max=1))


def test_head_has_no_body() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        reader = await rig.ask(PATH, method="HEAD")
        assert reader.status == 200
        await rig.wait_until(lambda: rig.service.streams == 0)

    play(scenario)


# ---- life and ends


def test_a_silent_tail_shows_that_it_lives() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tail = await rig.tail()
        await tail.wait_comment("keep-alive")
        rig.publish(b"x")
        assert (await tail.next()).offset == 0

    play(scenario, HttpConfig(keepalive_s=0.05))


def test_a_search_without_a_find_shows_that_it_lives() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        for _ in range(20):
            rig.publish(*[b"hay" * 100] * 50)
        tail = await rig.tail("?offset=earliest&contains=needle")
        await tail.wait_comment("keep-alive")
        rig.publish(b"needle")
        assert (await tail.next()).offset == 1000

    play(scenario, HttpConfig(keepalive_s=0.05))


def test_deleting_the_topic_ends_its_tails() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tail = await rig.tail()
        rig.publish(b"last")
        await rig.broker.delete_topic(TOPIC)
        record, end = await tail.take(2)
        assert record.data["value"] == "last"
        assert end.kind == "end" and "deleted" in end.data["reason"]
        with pytest.raises(EOFError):
            await tail.next()

    play(scenario)


def test_a_topic_of_the_same_name_is_another_one() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"old")
        tail = await rig.tail("?offset=earliest")
        assert (await tail.next()).data["value"] == "old"
        await rig.broker.delete_topic(TOPIC)
        await rig.create()
        rig.publish(b"new")
        assert (await tail.next()).kind == "end"
        again = await rig.tail(Last_Event_ID=tail.last_id)  # as EventSource comes back
        assert (await again.next()).data["value"] == "new"

    play(scenario)


def test_the_end_of_the_node_ends_every_tail_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        quiet, deaf = await rig.tail(), await rig.tail("?offset=earliest", receive_bytes=4 * KIB)
        deaf.stop_reading()
        rig.publish(*[b"x" * 10 * KIB] * 50)
        for _ in range(20):
            rig.publish(*[b"x" * 10 * KIB] * 50)
            await quiet.until(50)
        closing = asyncio.ensure_future(rig.listener.close())
        while (event := await quiet.next()).kind != "end":
            pass
        assert "stopping" in event.data["reason"]
        await closing  # which takes longer than this test may if the grace were for live streams
        assert rig.service.streams == 0

    play(scenario, HttpConfig(close_grace_s=10 * DEADLINE_S))


def test_many_clients_that_do_not_read_do_not_keep_a_node_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        path = f"/api/v1/topics/{TOPIC}/tail"
        deaf = [await rig.tail(receive_bytes=4 * KIB) for _ in range(50)]
        async with rig.socket(path, max_queue=1, close_timeout=0.1):
            for each in deaf:
                each.stop_reading()
            while sum(each.untaken > 0 for each in rig.listener.connections) < 50:
                rig.publish(*[b"x" * 10 * KIB] * 50)
                await asyncio.sleep(0.01)
            await rig.listener.close()
            assert rig.service.streams == 0

    play(scenario, HttpConfig(close_grace_s=10 * DEADLINE_S))
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []


def test_a_client_that_leaves_is_noticed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tails = [await rig.tail() for _ in range(3)]
        assert (rig.service.streams, len(rig.tails), len(rig.tails.rings)) == (3, 3, 1)
        for tail in tails:
            tail.close()
        await rig.wait_until(lambda: rig.service.streams == 0)
        assert (len(rig.tails), rig.tails.rings) == (0, [])
        partition = partition_of(rig.broker, TOPIC, 0)
        assert len(partition.waiters) == 0

    play(scenario)


# ---- slow and many


@pytest.mark.parametrize("query", ["", "?partition=0"])
def test_a_reader_that_does_not_read_misses_records_and_is_told_how_many(query: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        slow = await rig.tail(query, receive_bytes=4 * KIB)
        watch = await rig.tail()
        slow.stop_reading()
        batches, each = 100, 200
        for _ in range(batches):
            rig.publish(*[b"x" * 300] * each)
            rig.publish(b"other", partition=1)
            await watch.until(each + 1)
        (ring,) = rig.tails.rings
        assert ring.bytes <= 256 * KIB and len(ring) <= 500
        assert all(each.transport.get_write_buffer_size() <= 128 * KIB for each in rig.listener.connections)
        slow.go_on_reading()
        total = batches * each + (0 if query else batches)
        shown, skipped = await slow.until(total)
        assert skipped > 0
        offsets = [offset for partition, offset in places(shown) if partition == 0]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == batches * each - 1
        rig.publish(b"after")
        assert (await slow.next()).data["value"] == "after"

    play(
        scenario, HttpConfig(ring_records_max=500, ring_bytes_max=256 * KIB, stream_buffer_bytes_max=64 * KIB)
    )


def test_a_burst_that_the_ring_cannot_follow_is_leapt_over_and_counted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tail = await rig.tail()
        for _ in range(20):
            rig.publish(*[b"x"] * 1000)
        shown, skipped = await tail.until(20_000)
        assert skipped > 10_000
        assert shown[-1].offset == 19_999

    play(scenario, HttpConfig(ring_records_max=1000))


def test_what_was_shown_is_traffic_of_its_topic_and_what_was_skipped_is_not() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        tail = await rig.tail()
        for _ in range(20):
            rig.publish(*[NewMessage(b"k", b"value", [("h", b"x")])] * 1000)
        shown, skipped = await tail.until(20_000)
        assert skipped > 0
        topic = rig.broker.topics.get(TOPIC)
        assert topic is not None
        counters = topic.counters
        await rig.wait_until(lambda: counters.records_out == len(shown))
        assert counters.bytes_out == 8 * len(shown)

    play(scenario, HttpConfig(ring_records_max=1000))


@pytest.mark.parametrize(
    ("query", "shown", "size"), [("?offset=earliest", 3, 12), ("?offset=earliest&contains=yes", 2, 7)]
)
def test_history_is_traffic_of_its_topic(query: str, shown: int, size: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"yes", b"other")
        tails = [await rig.tail(query) for _ in range(2)]
        rig.publish(b"yes!")
        for tail in tails:
            await tail.take(shown)
        await rig.wait_until(lambda: rig.broker.counters.records_out == 2 * shown)
        assert rig.broker.counters.bytes_out == 2 * size

    play(scenario)


def test_history_is_never_skipped_for_a_slow_reader() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        for _ in range(20):
            rig.publish(*[b"x" * KIB] * 100)
        slow = await rig.tail("?offset=earliest", receive_bytes=4 * KIB)
        slow.stop_reading()
        for _ in range(10):
            rig.publish(*[b"y" * KIB] * 100)
            await asyncio.sleep(0)
        (ring,) = rig.tails.rings
        await rig.wait_until(lambda: ring.position(0) == 3000)  # a live tail may miss some
        slow.go_on_reading()
        shown, skipped = await slow.until(3000)
        assert skipped == 0
        assert [event.offset for event in shown] == list(range(3000))

    play(scenario, HttpConfig(ring_records_max=200, stream_buffer_bytes_max=32 * KIB))


def test_a_thousand_tails_show_every_record() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        tails: list[EventReader] = []
        for _ in range(20):
            tails += await asyncio.gather(*[rig.tail() for _ in range(50)])
        assert rig.service.streams == len(rig.tails) == 1000
        (ring,) = rig.tails.rings
        for number in range(10):
            rig.publish(b"%d" % number, partition=number % 2)
            rig.publish(*[b"%d" % number] * 3, partition=number % 2)
        shown = await asyncio.gather(*[tail.take(40) for tail in tails])
        assert ring.passed == 40  # decoded once
        expected = places(shown[0])
        assert len(set(expected)) == 40
        assert all(places(each) == expected for each in shown)

    play(scenario)


# ---- what cannot be decoded


@pytest.mark.parametrize("query", ["?offset=earliest", "?offset=-2", "?offset=earliest&partition=0"])
def test_a_tail_goes_on_over_what_cannot_be_decoded(query: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"a")
        poison(rig)
        rig.publish(b"b")
        tail = await rig.tail(query)
        shown, skipped = await tail.until(5)
        assert (values(shown), skipped) == (["a", "b"], 3)
        poison(rig)
        poison(rig)
        rig.publish(b"c")
        shown, skipped = await tail.until(7)
        assert (values(shown), skipped) == (["c"], 6)

    play(scenario)


def poison(rig: Rig) -> None:
    data = undecodable(3, time_ms=rig.broker.clock.now_ms())
    partition_of(rig.broker, TOPIC, 0).append(read_batch(data))
