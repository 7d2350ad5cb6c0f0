"""Partition ids: how they read, compare and sort; by hand."""

from __future__ import annotations

from uuid import UUID

from tailrace.model import NO_PRODUCER, PartitionId

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_a_partition_reads_as_topic_id_and_number() -> None:
    assert str(PartitionId(TOPIC, 12)) == "00112233445566778899aabbccddeeff-12"
    assert f"{PartitionId(TOPIC, 0)}" == "00112233445566778899aabbccddeeff-0"


def test_equal_ids_are_one_key() -> None:
    known = {PartitionId(TOPIC, 1): "one"}
    assert known[PartitionId(UUID(bytes=TOPIC.bytes), 1)] == "one"
    assert PartitionId(TOPIC, 2) not in known


def test_a_topic_of_the_same_name_is_another_one() -> None:
    assert PartitionId(TOPIC, 1) != PartitionId(UUID(int=TOPIC.int + 1), 1)


def test_partitions_of_a_topic_sort_by_number() -> None:
    ids = [PartitionId(TOPIC, number) for number in (10, 2, 1)]
    assert [partition_id.partition for partition_id in sorted(ids)] == [1, 2, 10]


def test_no_producer_is_not_an_id_that_a_producer_can_have() -> None:
    assert NO_PRODUCER < 0
