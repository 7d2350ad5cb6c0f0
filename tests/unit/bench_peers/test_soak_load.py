"""The parts of the soak's load against an embedded broker and against peers that break the rules."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

import pytest
from bench.child import Child
from bench.soak.connection import connect
from bench.soak.consumer import Consumer, position_after
from bench.soak.lane import Lane
from bench.soak.load import Load
from bench.soak.pace import Pace
from bench.soak.probe import next_due_ns, window_row
from bench.soak.shape import TOPIC, TOPIC_CONFIGS, Job, Rates, Shape
from bench.soak.visit import check_committed, visit_connection, visit_group, visit_topic

from tailrace.bench.wire import FixedReader, LoadError
from tailrace.bench.wire.kafka import one_record
from tailrace.bench.wire.ring import ring_of
from tailrace.bench.wire.topic import admin, fill

SHAPE = Shape(partitions=2, singles=2, batchers=2)
QUIET = Shape(partitions=2, singles=1, batchers=1, group_every_s=60, connection_every_s=60, topic_every_s=60)

Address = tuple[str, int]


@pytest.fixture
def topic(address: Address) -> Address:
    """The address of a broker that has the topic."""
    with admin(*address) as way:
        way.create(TOPIC, partitions=2, configs=TOPIC_CONFIGS)
    return address


# ---- all together


async def soak_until(load: Load, enough: Callable[[dict[str, object]], bool]) -> dict[str, object]:
    """Start it, look until there is enough, and stop it; the last row."""
    await load.start()
    async with asyncio.timeout(120):
        while not enough(load.row()):  # noqa: ASYNC110  # counters have no event to wait for
            await asyncio.sleep(0.01)
        return await load.stop()


@pytest.mark.parametrize("rates", [None, Rates(singles_per_s=200, batches_per_s=50)])
def test_all_that_is_acknowledged_is_read_and_everybody_visits(topic: Address, rates: Rates | None) -> None:
    load = Load(Job(host=topic[0], port=topic[1], shape=SHAPE, rates=rates))

    last = asyncio.run(
        soak_until(
            load,
            lambda row: all(cast(int, row[name]) for name in ("batches", "groups", "connections", "topics")),
        )
    )

    assert last["errors"] == []
    assert last["acknowledged"] == last["positions"]
    assert sum(cast(list[int], last["acknowledged"])) == last["records"]


def test_a_paced_load_sends_no_more_than_is_due(topic: Address) -> None:
    async def scenario() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        rates = Rates(singles_per_s=100, batches_per_s=1)
        load = Load(Job(host=topic[0], port=topic[1], shape=QUIET, rates=rates))
        last = await soak_until(load, lambda row: cast(int, row["singles"]) >= 20)
        return cast(int, last["singles"]), loop.time() - began

    singles, took_s = asyncio.run(scenario())

    assert 20 <= singles <= took_s * 100 + 1


def test_a_load_that_goes_on_starts_where_the_log_ends(topic: Address) -> None:
    fill(*topic, topic=TOPIC, batch=one_record(10), batches=7)
    load = Load(Job(host=topic[0], port=topic[1], shape=QUIET, rates=None))

    last = asyncio.run(soak_until(load, lambda row: cast(int, row["batches"]) > 0))

    acknowledged, positions = cast(list[int], last["acknowledged"]), cast(list[int], last["positions"])
    assert positions == [acknowledged[0] + 7, acknowledged[1]]


def test_the_load_s_process_answers_line_by_line(topic: Address) -> None:
    job = Job(host=topic[0], port=topic[1], shape=QUIET, rates=Rates(singles_per_s=50, batches_per_s=5))
    with Child("bench.soak.load", job.as_row()) as child:
        assert child.hear(timeout_s=60) == "ready"
        child.tell("row")
        assert child.hear_row(timeout_s=60)["kind"] == "row"
        child.tell("stop")
        last = child.hear_row(timeout_s=60)

    assert last["kind"] == "end"
    assert last["acknowledged"] == last["positions"]


def test_a_load_without_a_broker_says_so() -> None:
    job = Job(host="127.0.0.1", port=1, shape=QUIET)
    with Child("bench.soak.load", job.as_row()) as child, pytest.raises(LoadError, match="could not begin"):
        child.hear_row(timeout_s=60)


# ---- one producer


class Peer(asyncio.Protocol):
    """Answers what a script says, whatever it is sent."""

    def __init__(self, script: list[bytes | None]) -> None:
        self._script = script

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._script:
            answer = self._script.pop(0)
            if answer is None:
                self._transport.close()
            else:
                self._transport.write(answer)


async def with_peer(
    script: list[bytes | None], make: Callable[[Callable[[str], None]], asyncio.Protocol]
) -> tuple[asyncio.Protocol, str]:
    """Connect to the peer until somebody complains; the protocol and the complaint."""
    loop = asyncio.get_running_loop()
    said: asyncio.Future[str] = loop.create_future()

    def fail(why: str) -> None:
        if not said.done():
            said.set_result(why)

    server = await loop.create_server(lambda: Peer(list(script)), "127.0.0.1", 0)
    try:
        _, protocol = await loop.create_connection(lambda: make(fail), *server.sockets[0].getsockname())
        if isinstance(protocol, Lane):
            protocol.pump()
        async with asyncio.timeout(60):
            return protocol, await said
    finally:
        server.close()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([None], "the broker closed it"),
        ([b"ok", None], "the broker closed it"),
        ([b"no"], "a reply begins with"),
        ([b"ok" * 9], "9 replies to"),
    ],
)
def test_a_producer_tells_why_it_cannot_go_on(script: list[bytes | None], said: str) -> None:
    def make(fail: Callable[[str], None]) -> Lane:
        return Lane(
            ring=ring_of([b"request0", b"request1"], payload_bytes=8),
            reader=FixedReader(reply_bytes=2, begins=b"ok"),
            in_flight=2,
            pace=Pace(per_s=None, began_s=0.0),
            fail=fail,
        )

    async def scenario() -> str:
        lane, why = await with_peer(script, make)
        assert isinstance(lane, Lane)
        async with asyncio.timeout(60):
            await lane.wait_drained()  # it must not be waited for forever
        return why

    assert said in asyncio.run(scenario())


@pytest.mark.parametrize("in_flight", [0, 3])
def test_a_window_that_the_ring_cannot_hold_is_refused(in_flight: int) -> None:
    async def scenario() -> None:
        Lane(
            ring=ring_of([b"a", b"b"], payload_bytes=1),
            reader=FixedReader(reply_bytes=1, begins=b"x"),
            in_flight=in_flight,
            pace=Pace(per_s=None, began_s=0.0),
            fail=print,
        )

    with pytest.raises(ValueError, match="in flight"):
        asyncio.run(scenario())


# ---- one consumer


def batch_at(base: int, records: int, *, length: int = 49) -> bytes:
    head = struct.pack(">qi11xi", base, length, records - 1)
    return head + bytes(12 + length - len(head))


def test_batches_that_follow_each_other_move_the_position() -> None:
    records = batch_at(5, 1) + batch_at(6, 10) + batch_at(16, 2)

    assert position_after(memoryview(records), 5) == 18


def test_a_batch_that_is_cut_off_is_for_the_next_fetch() -> None:
    records = batch_at(5, 1) + batch_at(6, 10)

    assert position_after(memoryview(records[:-1]), 5) == 6
    assert position_after(memoryview(records[:70]), 5) == 6


@pytest.mark.parametrize(
    "records",
    [
        batch_at(6, 1),
        batch_at(4, 1),
        batch_at(5, 1) + batch_at(7, 1),
        batch_at(5, 0),
        batch_at(5, 1)[:8] + struct.pack(">i", 0) + batch_at(5, 1)[12:],
    ],
)
def test_a_gap_or_a_repetition_is_an_error(records: bytes) -> None:
    with pytest.raises(LoadError, match="where"):
        position_after(memoryview(records), 5)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "the broker closed it"),
        (struct.pack(">i", -1), "a reply of -1 bytes"),
        (struct.pack(">i", 1 << 30), "a reply of 1073741824 bytes"),
        (struct.pack(">iiB", 5, 99, 0), "correlation id 99"),
        (struct.pack(">iiB", 5, 1, 0), "partition 0"),
    ],
)
def test_a_consumer_tells_why_it_cannot_go_on(answer: bytes | None, said: str) -> None:
    async def scenario() -> str:
        consumer, why = await with_peer(
            [answer], lambda fail: Consumer(topic=TOPIC, partition=0, position=0, fail=fail)
        )
        assert isinstance(consumer, Consumer)
        async with asyncio.timeout(60):
            await consumer.wait_position(1)
        return why

    assert said in asyncio.run(scenario())


def test_who_waits_for_a_consumer_that_fails_is_let_go() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Peer([]), "127.0.0.1", 0)
        _, consumer = await loop.create_connection(
            lambda: Consumer(topic=TOPIC, partition=0, position=0, fail=lambda _why: None),
            *server.sockets[0].getsockname(),
        )
        waits = asyncio.create_task(consumer.wait_position(1))
        await asyncio.sleep(0)  # it waits now
        consumer.data_received(struct.pack(">i", -1))
        async with asyncio.timeout(60):
            await waits
        server.close()

    asyncio.run(scenario())


def test_an_offset_that_is_not_there_is_an_error(topic: Address) -> None:
    async def scenario() -> str:
        said: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_connection(
            lambda: Consumer(topic=TOPIC, partition=0, position=1000, fail=said.set_result), *topic
        )
        async with asyncio.timeout(60):
            return await said

    assert "OFFSET_OUT_OF_RANGE at offset 1000" in asyncio.run(scenario())


# ---- guests


def test_members_come_and_go_and_their_commits_stay(topic: Address) -> None:
    async def scenario() -> None:
        for number in range(3):
            at = [number, number]
            await visit_group(*topic, group="g", number=number, positions=at.copy)

    asyncio.run(scenario())


@pytest.mark.parametrize("expected", [[1, 3], [2, 2], [-1, -1]])
def test_commits_that_are_not_as_they_were_made_are_an_error(topic: Address, expected: list[int]) -> None:
    async def scenario() -> None:
        await visit_group(*topic, group="g", number=0, positions=lambda: [1, 2])
        async with connect(*topic) as way:
            await check_committed(way, "g", expected)

    with pytest.raises(LoadError, match="committed"):
        asyncio.run(scenario())


@pytest.mark.parametrize("number", range(4))
def test_a_guest_of_every_kind_leaves_the_broker_well(topic: Address, number: int) -> None:
    async def scenario() -> None:
        await visit_connection(*topic, number=number, end=lambda: 0)
        await visit_connection(*topic, number=0, end=lambda: 0)

    asyncio.run(scenario())


def test_a_topic_is_made_and_deleted(topic: Address) -> None:
    asyncio.run(visit_topic(*topic, name="soak-guest-3", batch=one_record(10)))

    with admin(*topic) as way:
        assert way.led(TOPIC, partitions=2)
        assert not way.led("soak-guest-3", partitions=1)


def test_a_topic_that_is_there_already_is_an_error(topic: Address) -> None:
    with admin(*topic) as way:
        way.create("soak-guest-3", partitions=1, configs={})

    with pytest.raises(LoadError, match="TOPIC_ALREADY_EXISTS"):
        asyncio.run(visit_topic(*topic, name="soak-guest-3", batch=one_record(10)))


def test_a_topic_that_is_not_there_is_an_error_to_a_guest(address: Address) -> None:
    with pytest.raises(LoadError, match="UNKNOWN_TOPIC"):
        asyncio.run(visit_group(*address, group="g", number=0, positions=lambda: [0, 0]))


# ---- the probe


def test_the_probe_answers_with_what_it_saw_since(address: Address) -> None:
    with Child("bench.soak.probe", {"host": address[0], "port": address[1]}) as probe:
        assert probe.hear(timeout_s=60) == "ready"
        row: dict[str, object] = {"count": 0}
        while not row["count"]:
            probe.tell("window")
            row = probe.hear_row(timeout_s=60)
        probe.tell("window")
        at_once = probe.hear_row(timeout_s=60)

    assert 0 < cast(float, row["p50_ms"]) <= cast(float, row["max_ms"])
    assert cast(int, at_once["count"]) <= 1


def test_a_probe_without_a_broker_says_so() -> None:
    nowhere = {"host": "127.0.0.1", "port": 1}
    with Child("bench.soak.probe", nowhere) as probe, pytest.raises(LoadError, match="cannot be reached"):
        probe.hear_row(timeout_s=60)


@pytest.mark.parametrize(("now", "due"), [(100, 150), (149, 150), (150, 200), (420, 450), (90, 150)])
def test_a_late_answer_leaves_out_what_was_due_meanwhile(now: int, due: int) -> None:
    assert next_due_ns(100, now, 50) == due


def test_a_window_without_answers_tells_so() -> None:
    assert window_row([]) == {"count": 0}


def test_a_window_is_told_in_milliseconds() -> None:
    found = window_row([2_000_000, 1_000_000, 9_000_000])

    assert found == {"count": 3, "p50_ms": 2.0, "p99_ms": 9.0, "max_ms": 9.0}
