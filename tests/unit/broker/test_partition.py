"""One partition: policy of an append, idempotence, epochs, waiting and reading."""

from __future__ import annotations

from uuid import UUID

import pytest

from tailrace.broker import NewTopic, Partition
from tailrace.broker.partition import ACKS_ALL, ACKS_LEADER
from tailrace.model import BrokerError, Epoch, ErrorCode, Offset, OffsetOutOfRange, PartitionId
from tailrace.records import Batch, build_batch, read_batch
from tailrace.storage import LogConfig, Waiter
from tailrace.storage.memory import MemoryLog
from tailrace.testing import FakeClock

from .conftest import Play, Rig


def batch(
    count: int = 1, *, key: bytes | None = b"k", producer: int = -1, sequence: int = -1, epoch: int = 0
) -> Batch:
    records = [(4_102_444_800_000 + n, key, b"v%d" % n, ()) for n in range(count)]
    if producer < 0:
        return read_batch(build_batch(records))
    return read_batch(
        build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


async def partition_of(rig: Rig, **configs: str) -> Partition:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return (await rig.topics.create(NewTopic(name="t", partitions=1, configs=named))).partitions[0]


def code_of(error: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return error.value.code


def test_batches_get_the_next_offsets_and_the_leaders_epoch(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        first, second = batch(3), batch(2)
        assert partition.append(first)[:3] == (0, 3, -1)
        assert partition.append(second)[:3] == (3, 5, -1)
        assert second.leader_epoch == partition.leader_epoch
        await partition.wait_acknowledged(Offset(5))
        assert partition.high_watermark == partition.last_stable_offset == 5
        found = await partition.read(Offset(4), bytes_max=1)
        assert await found.load() == second.data
        assert (rig.counters.records_in, rig.counters.batches_in) == (5, 2)

    play(scenario)


def test_append_time_is_the_brokers(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig, message_timestamp_type="LogAppendTime")
        made = batch(2)
        now = rig.clock.now_ms()
        assert partition.append(made).log_append_time_ms == now
        assert made.is_log_append_time and made.max_timestamp == now and made.check_crc()

    play(scenario)


def test_a_record_without_a_key_has_no_place_in_a_compacted_topic(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig, cleanup_policy="compact")
        partition.append(batch(key=b"k"))
        with pytest.raises(BrokerError) as error:
            partition.append(batch(key=None))
        assert code_of(error) == ErrorCode.INVALID_RECORD
        assert partition.high_watermark == 1

    play(scenario)


def test_a_batch_sent_again_is_stored_once(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        first = partition.append(batch(3, producer=7, sequence=0))
        partition.append(batch(2, producer=7, sequence=3))
        assert partition.append(batch(3, producer=7, sequence=0)) == first
        assert partition.high_watermark == 5

    play(scenario)


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (1, 9, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
    ids=["hole", "new epoch not from 0", "old epoch"],
)
def test_a_producer_that_does_not_go_on_is_refused(
    play: Play, epoch: int, sequence: int, code: ErrorCode
) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        partition.append(batch(3, producer=7, sequence=0, epoch=1))
        with pytest.raises(BrokerError) as error:
            partition.append(batch(1, producer=7, sequence=sequence, epoch=epoch))
        assert code_of(error) == code
        assert partition.high_watermark == 3

    play(scenario)


def test_another_epoch_is_fenced(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await partition_of(rig)
        topic = (await rig.restart()).get("t")
        assert topic is not None
        partition = topic.partitions[0]
        partition.check_epoch(-1)
        partition.check_epoch(1)
        for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            with pytest.raises(BrokerError) as error:
                partition.check_epoch(epoch)
            assert code_of(error) == code

    play(scenario)


def test_where_an_epoch_ended(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (await partition_of(rig)).append(batch(3))
        topic = (await rig.restart()).get("t")
        assert topic is not None
        partition = topic.partitions[0]
        assert partition.end_of_epoch(1) == (1, 3)  # nothing was written in it yet
        partition.append(batch(2))
        assert partition.end_of_epoch(0) == (Epoch(0), 3)
        assert partition.end_of_epoch(1) == (Epoch(1), 5)
        assert partition.end_of_epoch(2) is None
        assert [partition.epoch_at(offset) for offset in (0, 2, 3, 4)] == [0, 0, 1, 1]

    play(scenario)


def test_who_waits_is_called_until_he_goes(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        calls: list[Offset] = []

        def look() -> None:
            calls.append(partition.high_watermark)
            if len(calls) == 2:
                partition.waiters.discard(look)

        partition.waiters.add(look)
        for _ in range(3):
            partition.append(batch())
        assert calls == [1, 2]
        assert len(partition.waiters) == 0

    play(scenario)


class LateLog(MemoryLog):
    """A log whose batches become durable when the test says so."""

    __slots__ = ("_durable",)

    def __init__(self) -> None:
        self._durable = Offset(0)
        super().__init__(PartitionId(UUID(int=1), 0), LogConfig(), clock=FakeClock())

    @property
    def durable_offset(self) -> Offset:
        return self._durable

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if end <= self._durable:
            waiter.set_result(None)
        else:
            self._waiters.append((end, waiter))

    def _wake_reached(self) -> None:
        pass

    def settle(self, end: int) -> None:
        self._durable = Offset(end)
        self.on_change()
        for waited, waiter in self._waiters:
            if waited <= end and not waiter.done():
                waiter.set_result(None)


class Noted:
    """A waiter that notes the watermark when it is told."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.watermark: int | None = None

    def done(self) -> bool:
        return self.watermark is not None

    def set_result(self, _: None) -> None:
        self.watermark = self.partition.high_watermark

    def set_exception(self, error: Exception) -> None:
        raise error


def late(topic_partition: Partition) -> LateLog:
    log = LateLog()
    topic_partition.open(log)
    return log


def test_what_is_durable_is_visible_and_nothing_else(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        log = late(partition)
        for _ in range(3):
            partition.append(batch(2))
        for durable in (0, 2, 6):
            log.settle(durable)
            assert partition.high_watermark == partition.last_stable_offset == durable
            for found in (
                partition.read_nowait(Offset(0), bytes_max=1 << 20),
                await partition.read(Offset(0), bytes_max=1 << 20),
                await partition.read(Offset(0), bytes_max=1 << 20, up_to=Offset(6)),
            ):
                assert found is not None and found.next_offset == durable
            for offset in range(durable, 7):
                empty = await partition.read(Offset(offset), bytes_max=1 << 20)
                assert (empty.size, empty.next_offset) == (0, offset)
            with pytest.raises(OffsetOutOfRange) as refused:
                partition.read_nowait(Offset(7), bytes_max=1)
            assert (refused.value.start, refused.value.end) == (0, durable)
            found_time = await partition.find_timestamp(0, up_to=Offset(6))
            assert (found_time is None) == (durable == 0)
        assert (await partition.read(Offset(0), bytes_max=1 << 20, up_to=Offset(4))).next_offset == 4
        assert await partition.find_timestamp(0, up_to=Offset(0)) is None

    play(scenario)


def test_the_watermark_has_moved_when_a_waiter_is_told(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        log = late(partition)
        end = partition.append(batch(2)).end_offset
        waiters = [Noted(partition), Noted(partition)]
        partition.acknowledged(end, ACKS_LEADER, waiters[0])
        partition.acknowledged(end, ACKS_ALL, waiters[1])
        future = partition.wait_acknowledged(end)
        assert not future.done() and not any(waiter.done() for waiter in waiters)
        log.settle(2)
        assert [waiter.watermark for waiter in waiters] == [2, 2] and future.done()
        at_once = Noted(partition)
        partition.acknowledged(end, ACKS_ALL, at_once)
        assert at_once.watermark == 2

    play(scenario)


def test_what_is_not_visible_is_neither_deleted_nor_final(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        log = late(partition)
        for _ in range(3):
            partition.append(batch(2))
        log.settle(4)
        assert log.final_before() == 4
        with pytest.raises(OffsetOutOfRange) as refused:
            await partition.delete_records(5)
        assert refused.value.end == 4
        assert await partition.delete_records(-1) == 4

    play(scenario)


def test_the_newest_batch_is_found_before_it_is_visible(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        late(partition)
        empty = partition.read_newest_nowait()
        assert empty is not None and empty.size == 0
        partition.append(batch(2))
        newest = batch(3)
        partition.append(newest)
        found = partition.read_newest_nowait()
        assert found is not None and await found.load() == newest.data

    play(scenario)


def test_a_truncation_takes_the_watermark_back_at_once(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        for _ in range(3):
            partition.append(batch(2))
        assert partition.log is not None
        await partition.log.truncate(Offset(3))
        assert partition.high_watermark == partition.last_stable_offset == 2

    play(scenario)


def test_records_are_deleted_up_to_an_offset(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        for _ in range(3):
            partition.append(batch(2))
        assert await partition.delete_records(3) == 3
        assert await partition.delete_records(1) == 3
        with pytest.raises(OffsetOutOfRange):
            partition.read_nowait(Offset(2), bytes_max=1)
        for beyond in (7, -2):
            with pytest.raises(OffsetOutOfRange):
                await partition.delete_records(beyond)
        assert await partition.delete_records(-1) == 6

    play(scenario)


def test_a_closed_partition_answers_with_an_error(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        partition.close()
        assert not partition.is_held_here
        for use in (
            lambda: partition.append(batch()),
            lambda: partition.read_nowait(Offset(0), bytes_max=1),
            lambda: partition.wait_acknowledged(Offset(0)),
            partition.check_led,
        ):
            with pytest.raises(BrokerError) as error:
                use()
            assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)
