"""One partition: policy of an append, idempotence, epochs, waiting and reading."""

from __future__ import annotations

import pytest

from tailrace.broker import NewTopic, Partition
from tailrace.model import BrokerError, Epoch, ErrorCode, Offset, OffsetOutOfRange
from tailrace.records import Batch, build_batch, read_batch

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
        await partition.wait_durable(Offset(5))
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
        with pytest.raises(BrokerError) as error:
            partition.append(batch())
        assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)
