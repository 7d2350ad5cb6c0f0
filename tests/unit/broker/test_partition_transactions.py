"""Transactions in one partition: who may write, markers, and how far a reader of committed records reads."""

from __future__ import annotations

import pytest

from tailrace.broker.partition import Partition
from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.records import Batch, Marker, build_batch, read_batch, read_marker

from .conftest import Play, Rig
from .test_partition import code_of, late, partition_of

A, B = 7, 8


def data(sequence: int = 0, *, producer_id: int = A, epoch: int = 0, count: int = 1) -> Batch:
    return read_batch(
        build_batch(
            [(1000, b"k", b"v", ())] * count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )


def write(partition: Partition, sequence: int = 0, *, producer_id: int = A, epoch: int = 0) -> None:
    partition.append(data(sequence, producer_id=producer_id, epoch=epoch), verified=True)


def end(partition: Partition, *, producer_id: int = A, epoch: int = 0, commit: bool = True) -> None:
    assert partition.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=0) is not None


# ---- who may write


def test_a_transactional_batch_needs_an_open_transaction_or_the_word_of_the_coordinator(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        with pytest.raises(BrokerError, match="to be added to the transaction") as error:
            partition.append(data())
        assert code_of(error) == ErrorCode.INVALID_TXN_STATE
        assert partition.end_offset == 0
        assert partition.append(data(), verified=True).base_offset == 0
        assert partition.append(data(1)).base_offset == 1
        end(partition)
        with pytest.raises(BrokerError) as error:
            partition.append(data(2))
        assert code_of(error) == ErrorCode.INVALID_TXN_STATE

    play(scenario)


def test_a_newer_epoch_is_not_that_of_the_open_transaction(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        write(partition)
        with pytest.raises(BrokerError) as error:
            partition.append(data(epoch=1))
        assert code_of(error) == ErrorCode.INVALID_TXN_STATE

    play(scenario)


def test_a_batch_sent_again_after_its_marker_opens_nothing(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        first = partition.append(data(), verified=True)
        end(partition)
        assert partition.append(data())[:2] == first[:2]
        assert partition.last_stable_offset == 2

    play(scenario)


# ---- markers


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_is_written_where_a_transaction_is_open_and_only_there(play: Play, commit: bool) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        assert partition.append_marker(A, 0, commit=commit, coordinator_epoch=3) is None
        write(partition)
        appended = partition.append_marker(A, 0, commit=commit, coordinator_epoch=3)
        assert appended is not None
        assert (appended.base_offset, appended.end_offset) == (1, 2)
        assert partition.append_marker(A, 0, commit=commit, coordinator_epoch=3) is None
        assert partition.end_offset == 2
        (marker,) = [read_batch(await (await partition.read(Offset(1), bytes_max=1)).load())]
        assert read_marker(marker) == Marker(commit, 3)
        assert marker.leader_epoch == partition.leader_epoch
        assert rig.counters.records_in == 1

    play(scenario)


def test_markers_of_older_epochs_are_refused(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        write(partition, epoch=2)
        with pytest.raises(BrokerError) as error:
            partition.append_marker(A, 1, commit=True, coordinator_epoch=5)
        assert code_of(error) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.append_marker(A, 3, commit=True, coordinator_epoch=5) is not None
        write(partition, epoch=3)
        with pytest.raises(BrokerError) as error:
            partition.append_marker(A, 3, commit=True, coordinator_epoch=4)
        assert code_of(error) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert partition.end_offset == 3

    play(scenario)


def test_a_marker_is_taken_by_a_compacted_topic_and_one_that_stamps(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig, cleanup_policy="compact", message_timestamp_type="LogAppendTime")
        write(partition)
        end(partition)
        assert partition.last_stable_offset == 2

    play(scenario)


def test_a_partition_that_is_not_served_takes_no_marker(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        write(partition)
        partition.close()
        with pytest.raises(BrokerError) as error:
            partition.append_marker(A, 0, commit=True, coordinator_epoch=0)
        assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)


# ---- the last stable offset


def test_an_open_transaction_holds_the_last_stable_offset(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        partition.append(read_batch(build_batch([(0, b"k", b"v", ())])))
        write(partition)
        write(partition, producer_id=B)
        partition.append(read_batch(build_batch([(0, b"k", b"v", ())])))
        assert (partition.high_watermark, partition.last_stable_offset) == (4, 1)
        end(partition, producer_id=B)
        assert (partition.high_watermark, partition.last_stable_offset) == (5, 1)
        end(partition, commit=False)
        assert (partition.high_watermark, partition.last_stable_offset) == (6, 6)

    play(scenario)


def test_a_transaction_counts_as_open_until_its_marker_is_visible(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        log = late(partition)
        write(partition)
        log.settle(1)
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        end(partition)
        log.on_change()
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
        write(partition, producer_id=B)
        log.settle(2)
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        log.settle(3)
        assert (partition.high_watermark, partition.last_stable_offset) == (3, 2)

    play(scenario)


def test_a_truncated_marker_opens_its_transaction_again(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        partition.append(read_batch(build_batch([(0, b"k", b"v", ())])))
        write(partition)
        end(partition)
        assert partition.last_stable_offset == 3
        assert partition.log is not None
        await partition.log.truncate(Offset(2))
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
        await partition.log.truncate(Offset(1))
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)

    play(scenario)


def test_records_are_deleted_past_the_last_stable_offset_when_a_client_asks(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        write(partition)
        write(partition, 1)
        assert partition.last_stable_offset == 0
        assert await partition.delete_records(1) == 1
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
        end(partition)
        assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)

    play(scenario)


def test_what_an_abort_could_take_back_is_not_final(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partition = await partition_of(rig)
        partition.append(read_batch(build_batch([(0, b"k", b"v", ())])))
        write(partition)
        assert partition.log is not None
        assert partition.log.final_before() == 1

    play(scenario)
