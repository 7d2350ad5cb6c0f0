"""Fetch over a real connection: limits, long polls, sessions, errors, and records that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from tests.unit.kafka.rig import TOPIC, Rig, batch, fetch_body, only, play, produce_body

from tailrace.broker import NewTopic
from tailrace.kafka import KafkaConfig, service
from tailrace.model import ErrorCode, LogDamaged, Offset, StorageError
from tailrace.records import iter_batches
from tailrace.storage import Slice
from tailrace.storage.api import Extent
from tailrace.wire.kafka import FETCH, PRODUCE, FetchResult, read_fetch_response


def offsets_in(result: FetchResult[memoryview]) -> list[int]:
    """Base offsets of the batches."""
    return [found.base_offset for found in iter_batches(result.records or b"")]


def topic_id(rig: Rig) -> UUID:
    topic = rig.broker.topics.get(TOPIC)
    assert topic is not None
    return topic.id


@pytest.mark.parametrize("version", range(4, 18))
def test_records_come_back_as_they_were_produced(version: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"one", b"two"))
        await client.produce(batch(b"three"))
        named = topic_id(rig) if version >= 13 else TOPIC
        response = await client.fetch({0: 0}, version=version, topic=named)
        assert [topic for topic, _ in response.topics] == [named]
        result = only(response)
        assert (result.error_code, result.high_watermark, result.last_stable_offset) == (0, 3, 3)
        values = [record.value for found in iter_batches(result.records or b"") for record in found.records()]
        assert values == [b"one", b"two", b"three"]
        assert result.log_start_offset == (0 if version >= 5 else -1)

    play(scenario)


def test_an_offset_inside_a_batch_yields_the_whole_batch() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"a", b"b", b"c"))
        await client.produce(batch(b"d"))
        assert offsets_in(only(await client.fetch({0: 2}))) == [0, 3]

    play(scenario)


def test_the_first_batch_comes_however_large_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for partition in (0, 1):
            await client.produce(batch(b"x" * 5000), partition=partition)
        response = await client.fetch({0: 0, 1: 0}, max_bytes=100, partition_max_bytes=50)
        first, second = response.topics[0][1]
        assert len(first.records or b"") > 5000
        assert not second.records and second.error_code == 0 and second.high_watermark == 1

    play(scenario)


def test_max_bytes_bounds_the_rest() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for partition in (0, 1):
            for _ in range(5):
                await client.produce(batch(b"x" * 1000), partition=partition)
        response = await client.fetch({0: 0, 1: 0}, max_bytes=6000, partition_max_bytes=4000)
        counts = [len(offsets_in(result)) for result in response.topics[0][1]]
        assert counts == [3, 2]
        for limit in (0, -1):  # nonsense is not trusted, and does not hang the client
            assert len(offsets_in(only(await client.fetch({0: 0}, partition_max_bytes=limit)))) == 1

    play(scenario)


def test_a_reply_is_never_larger_than_the_listener_allows() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(9):
            await client.produce(batch(b"x" * 1000))
        assert len(offsets_in(only(await client.fetch({0: 0}, max_bytes=2**31 - 1)))) == 2

    play(scenario, config=KafkaConfig(fetch_bytes_max=2500))


def test_nothing_at_or_above_the_high_watermark_is_sent() -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        rig.log().hold()
        producer.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log().end_offset == 1)
        result = only(await client.fetch({0: 0}))
        assert (result.error_code, result.high_watermark, bytes(result.records or b"")) == (0, 0, b"")
        rig.log().settle()
        assert offsets_in(only(await client.fetch({0: 0}))) == [0]

    play(scenario)


def test_a_long_poll_is_woken_by_new_records() -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        client.send(FETCH, 12, fetch_body({0: 0, 1: 0}, max_wait_ms=25_000))
        partition = rig.partition(1)
        await rig.wait_until(lambda: len(partition.waiters) == 1)
        await producer.produce(batch(), partition=1)
        response = read_fetch_response((await client.receive(FETCH, 12))[1], 12)
        assert [offsets_in(result) for result in response.topics[0][1]] == [[], [0]]
        assert len(partition.waiters) == 0

    play(scenario)


def test_a_long_poll_waits_for_enough_bytes_over_all_partitions() -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        await producer.produce(batch(b"x" * 400))
        client.send(FETCH, 12, fetch_body({0: 0, 1: 0}, max_wait_ms=25_000, min_bytes=1000))
        await rig.wait_until(lambda: len(rig.partition(1).waiters) == 1)
        await producer.produce(batch(b"x" * 300), partition=1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.03)
        await producer.produce(batch(b"x" * 300), partition=1)
        response = read_fetch_response((await client.receive(FETCH, 12))[1], 12)
        assert [offsets_in(result) for result in response.topics[0][1]] == [[0], [0, 1]]

    play(scenario)


def test_a_long_poll_ends_at_its_time_with_what_there_is() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch())
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = only(await client.fetch({0: 0}, max_wait_ms=60, min_bytes=100_000))
        assert offsets_in(result) == [0] and loop.time() - began >= 0.055
        assert len(rig.partition(0).waiters) == 0

    play(scenario)


@pytest.mark.parametrize("wait_ms", [0, -5])
def test_without_time_to_wait_the_answer_comes_at_once(wait_ms: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert not only(await client.fetch({0: 0}, max_wait_ms=wait_ms, min_bytes=9999)).records

    play(scenario)


def test_without_partitions_the_answer_comes_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert (await client.fetch({}, max_wait_ms=25_000)).topics == []

    play(scenario)


def test_an_error_ends_the_wait_at_once_and_names_its_partition() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        response = await client.fetch({0: 0, 7: 0}, max_wait_ms=25_000)
        fine, unknown = response.topics[0][1]
        assert fine.error_code == 0 and fine.high_watermark == 0
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (unknown.high_watermark, unknown.last_stable_offset, unknown.log_start_offset) == (-1, -1, -1)
        assert not unknown.records

    play(scenario)


@pytest.mark.parametrize("offset", [1, -1, 2**62])
def test_an_offset_outside_the_log_is_an_error(offset: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        result = only(await client.fetch({0: offset}, max_wait_ms=25_000))
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and result.high_watermark == -1

    play(scenario)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, 0), (5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-3, ErrorCode.FENCED_LEADER_EPOCH)],
)
def test_the_clients_leader_epoch_is_checked(epoch: int, code: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert only(await client.fetch({0: 0}, leader_epoch=epoch)).error_code == code

    play(scenario)


def test_a_topic_that_goes_wakes_who_waits_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=25_000))
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == 1)
        await rig.broker.topics.delete(TOPIC)
        result = only(read_fetch_response((await client.receive(FETCH, 12))[1], 12))
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


def test_read_committed_carries_an_empty_list_of_aborted_transactions() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch())
        assert only(await client.fetch({0: 0}, isolation_level=1)).aborted == []
        assert only(await client.fetch({0: 0}, isolation_level=0)).aborted in (None, [])

    play(scenario)


def test_a_session_over_the_wire() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch())
        first = await client.fetch({0: 0, 1: 0}, session_epoch=0)
        assert first.session_id > 0 and len(first.topics[0][1]) == 2
        ask = {"session_id": first.session_id}
        second = await client.fetch({0: 1}, session_epoch=1, **ask)
        assert second.session_id == first.session_id and second.topics == []
        await client.produce(batch(), partition=1)
        third = await client.fetch({}, session_epoch=2, max_wait_ms=25_000, **ask)
        assert only(third).index == 1 and offsets_in(only(third)) == [0]
        stale = await client.fetch({}, session_epoch=2, **ask)
        assert stale.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH and stale.topics == []
        unknown = await client.fetch({}, session_id=first.session_id ^ 1, session_epoch=5)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    play(scenario)


def test_an_incremental_fetch_with_nothing_new_waits() -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        first = await client.fetch({0: 0}, session_epoch=0)
        body = fetch_body({}, session_id=first.session_id, session_epoch=1, max_wait_ms=25_000)
        client.send(FETCH, 12, body)
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == 1)
        await producer.produce(batch())
        assert offsets_in(only(read_fetch_response((await client.receive(FETCH, 12))[1], 12))) == [0]

    play(scenario)


def test_records_on_the_disk_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"cold"))
        log = rig.log()
        warm = log.read_nowait

        async def read(offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
            await asyncio.sleep(0)
            return warm(offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(log, "read_nowait", lambda *_, **__: None)
        monkeypatch.setattr(log, "read", read)
        assert offsets_in(only(await client.fetch({0: 0}, max_wait_ms=25_000))) == [0]
        assert rig.listener.budget.used == 0

    play(scenario)


def test_what_came_while_another_partition_was_read_from_the_disk_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        await producer.produce(batch(b"cold"), partition=1)
        log, asked, found = rig.log(1), asyncio.Event(), asyncio.Event()
        warm = log.read_nowait

        async def read(offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
            asked.set()
            await found.wait()
            monkeypatch.undo()
            return warm(offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(log, "read_nowait", lambda *_, **__: None)
        monkeypatch.setattr(log, "read", read)
        client.send(FETCH, 12, fetch_body({0: 0, 1: 0}, max_wait_ms=300_000, min_bytes=1000))
        await asked.wait()
        await producer.produce(batch(b"x" * 1000))
        found.set()
        response = read_fetch_response((await client.receive(FETCH, 12))[1], 12)
        assert [offsets_in(result) for result in response.topics[0][1]] == [[0], [0]]

    play(scenario)


class _Extent:
    def __init__(self, inner: Extent, *, damaged: bool) -> None:
        self.size = inner.size
        self._inner = inner
        self._damaged = damaged

    def load_nowait(self) -> memoryview | None:
        if self._damaged:
            raise LogDamaged("a bit flipped")
        return self._inner.load_nowait()

    async def load(self) -> memoryview:
        view = self.load_nowait()
        assert view is not None
        return view

    def release(self) -> None: ...


def test_damage_cuts_one_reply_off_and_is_an_error_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind sound batches it cannot be told at once: the head of the reply has left by then."""

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(4):
            await client.produce(batch(b"x" * 20_000))
        log = rig.log()
        warm = log.read_nowait

        def read_nowait(offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
            found = warm(offset, bytes_max=bytes_max, up_to=up_to)
            extents: Sequence[Extent] = [
                _Extent(extent, damaged=offset + place >= 2) for place, extent in enumerate(found.extents)
            ]
            return Slice(found.next_offset, extents, found.size)

        monkeypatch.setattr(log, "read_nowait", read_nowait)
        client.send(FETCH, 12, fetch_body({0: 0}))
        await client.wait_closed()
        again = await rig.connect()
        assert offsets_in(only(await again.fetch({0: 0}))) == [0, 1]  # what is sound
        result = only(await again.fetch({0: 2}, max_wait_ms=25_000))
        assert result.error_code == ErrorCode.CORRUPT_MESSAGE and not result.records

    play(scenario)


def test_storage_trouble_is_that_partitions_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        def fails(*_: object, **__: object) -> None:
            raise StorageError("read", "/data", "Input/output error")

        client = await rig.connect()
        await client.produce(batch(), partition=1)
        monkeypatch.setattr(rig.log(0), "read_nowait", fails)
        broken, fine = (await client.fetch({0: 0, 1: 0})).topics[0][1]
        assert broken.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets_in(fine) == [0]

    play(scenario)


@pytest.mark.parametrize("ending", ["the client leaves", "the listener closes"])
def test_a_fetch_that_comes_from_the_disk_waits_for_nobody_once_it_is_over(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        partition, log = rig.partition(0), rig.log()
        reading, go_on = asyncio.Event(), asyncio.Event()
        warm = log.read_nowait

        async def read(offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
            reading.set()
            await go_on.wait()
            return warm(offset, bytes_max=bytes_max, up_to=up_to)

        monkeypatch.setattr(log, "read_nowait", lambda *_, **__: None)
        monkeypatch.setattr(log, "read", read)
        client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=25_000))
        await reading.wait()
        if ending == "the client leaves":
            client.close()
            await rig.wait_until(lambda: rig.listener.counters.connections == 0)
            go_on.set()
            await asyncio.sleep(0.01)
            assert len(partition.waiters) == 0
        else:
            closing = asyncio.ensure_future(rig.listener.close())
            await asyncio.sleep(0)
            go_on.set()
            await client.receive(FETCH, 12)
            await closing

    play(scenario)


def test_a_fetch_of_too_many_partitions_ends_its_connection() -> None:
    async def scenario(rig: Rig) -> None:
        client, other = await rig.connect(), await rig.connect()
        client.send(FETCH, 12, fetch_body(dict.fromkeys(range(11), 0)))
        assert await client.wait_closed() == b""
        assert len((await other.fetch(dict.fromkeys(range(10), 0))).topics[0][1]) == 10

    play(scenario, config=KafkaConfig(session_partitions_max=10))


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 0}, {"max_bytes": -1}, {"partition_max_bytes": 0}, {"partition_max_bytes": -5}]
)
def test_without_room_the_first_batch_comes_all_the_same(limits: dict[str, int]) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for partition in (0, 1):
            await client.produce(batch(b"v" * 100), partition=partition)
            await client.produce(batch(b"v" * 100), partition=partition)
        ((_, results),) = (await client.fetch({0: 0, 1: 0}, **limits)).topics
        assert [offsets_in(result) for result in results] == [[0], []]

    play(scenario)


def test_the_age_of_what_is_fetched_is_noted_once_for_each_partition_with_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "AGE_GAP_S", 0.0)

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        ages, now_ms = rig.broker.counters.fetch_age, rig.broker.clock.now_ms()
        await client.produce(batch(b"a", timestamp=now_ms - 2_000))
        await client.produce(batch(b"b", timestamp=now_ms - 1_000))
        await client.fetch({0: 0, 1: 0}, max_wait_ms=0)
        assert (ages.count, ages.sum_s) == (1, 2.0), "by the first batch; the other partition is empty"
        await client.fetch({0: 1})
        assert (ages.count, ages.sum_s) == (2, 3.0)
        for _ in range(3):
            await client.produce(batch(b"x" * 60_000, timestamp=now_ms - 1_000), partition=1)
        await client.fetch({1: 0})
        assert (ages.count, ages.sum_s) == (3, 4.0), "once, of however many pieces"

    play(scenario)


def test_after_one_answer_the_age_of_others_is_not_noted_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "AGE_GAP_S", 3_600.0)
    monkeypatch.setattr(service, "random", lambda: 0.5)

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"a"))
        await client.produce(batch(b"b"), partition=1)
        await client.fetch({0: 0, 1: 0})
        assert rig.broker.counters.fetch_age.count == 2, "both partitions of the first answer"
        await client.fetch({0: 0})
        assert rig.broker.counters.fetch_age.count == 2

    play(scenario)


@pytest.mark.parametrize(("timestamp", "counted"), [(-1, 0), (1 << 50, 1)])
def test_records_without_a_time_have_no_age_and_those_of_the_future_are_new(
    timestamp: int, counted: int
) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(b"a", timestamp=timestamp))
        await client.fetch({0: 0})
        ages = rig.broker.counters.fetch_age
        assert (ages.count, ages.sum_s) == (counted, 0.0)

    play(scenario, values={"log.message.timestamp.difference.max.ms": str(1 << 60)})


# ---- topics by their ids (KIP-516)


@pytest.mark.parametrize("version", [13, 17])
def test_an_id_that_no_topic_has_is_told_as_such(version: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for unknown in (uuid4(), UUID(int=0)):
            response = await client.fetch({0: 0}, version=version, topic=unknown, max_wait_ms=60_000)
            assert [topic for topic, _ in response.topics] == [unknown]
            result = only(response)
            assert (result.error_code, result.high_watermark) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)

    play(scenario)


def test_a_partition_that_a_topic_does_not_have_is_told_as_such() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(2):
            result = only(await client.fetch({9: 0}, version=17, topic=topic_id(rig)))
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


def test_a_fetch_by_id_waits_for_records_in_its_session() -> None:
    async def scenario(rig: Rig) -> None:
        client, writer = await rig.connect(), await rig.connect()
        named = topic_id(rig)
        first = await client.fetch({0: 0, 1: 0}, version=17, topic=named, session_epoch=0)
        assert [result.index for result in first.topics[0][1]] == [0, 1] and first.session_id
        body = fetch_body({}, version=17, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000)
        client.send(FETCH, 17, body)
        await rig.wait_until(lambda: bool(rig.partition().waiters.callbacks))
        await writer.produce(batch(b"late"))
        response = read_fetch_response((await client.receive(FETCH, 17))[1], 17)
        assert [topic for topic, _ in response.topics] == [named]
        assert offsets_in(only(response)) == [0]

    play(scenario)


def test_a_session_hears_that_its_topic_was_deleted_and_that_another_has_its_name() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        named = topic_id(rig)
        opened = await client.fetch({0: 0}, version=17, topic=named, session_epoch=0)
        session = opened.session_id
        await rig.broker.delete_topic(TOPIC)
        gone = await client.fetch({}, version=17, session_id=session, session_epoch=1)
        assert only(gone).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await rig.broker.topics.create(NewTopic(name=TOPIC, partitions=1))
        await client.produce(batch(b"of the new topic"))
        other = await client.fetch({}, version=17, session_id=session, session_epoch=2)
        assert [topic for topic, _ in other.topics] == [named]
        assert (only(other).error_code, bytes(only(other).records or b"")) == (
            ErrorCode.INCONSISTENT_TOPIC_ID,
            b"",
        )
        fresh = await client.fetch({0: 0}, version=17, topic=named)
        assert only(fresh).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert offsets_in(only(await client.fetch({0: 0}, version=17, topic=topic_id(rig)))) == [0]

    play(scenario)


def test_a_session_that_began_with_names_is_refused_ids() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        opened = await client.fetch({0: 0}, version=12, session_epoch=0)
        body = fetch_body({}, version=17, session_id=opened.session_id, session_epoch=1)
        refused = read_fetch_response(await client.call(FETCH, 17, body), 17)
        assert refused.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        again = await client.fetch({}, version=12, session_id=opened.session_id, session_epoch=1)
        assert again.error_code == 0

    play(scenario)
