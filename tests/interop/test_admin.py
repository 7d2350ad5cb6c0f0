"""What administrators do: topics, partitions, configs, groups and records."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.interop.clients.port import (
    Client,
    ClientError,
    Feature,
    Group,
    Message,
    Reading,
    TopicPartition,
    needs,
)
from tests.interop.deadline import wait_until

_INVALID_TOPIC, _TOPIC_EXISTS, _INVALID_PARTITIONS, _INVALID_REPLICATION = 17, 36, 37, 38
_INVALID_CONFIG, _UNKNOWN_TOPIC, _NON_EMPTY_GROUP, _GROUP_NOT_FOUND = 40, 3, 68, 69


def refusal(action: Callable[[], object]) -> int | None:
    """The code that the client reports for what must not succeed."""
    with pytest.raises(ClientError) as refused:
        action()
    return refused.value.code


@needs(Feature.TOPICS)
def test_a_topic_is_made_with_its_partitions_and_listed(client: Client, fresh_name: str) -> None:
    client.admin.create_topic(fresh_name, partitions=7)
    wait_until(lambda: client.admin.topics().get(fresh_name) == 7, within_s=60, what="not listed")


@needs(Feature.TOPICS)
def test_a_topic_is_not_made_twice(client: Client, topic: str) -> None:
    assert refusal(lambda: client.admin.create_topic(topic)) == _TOPIC_EXISTS


@needs(Feature.TOPICS)
def test_a_bad_name_is_refused(client: Client) -> None:
    assert refusal(lambda: client.admin.create_topic("no spaces, please")) == _INVALID_TOPIC


@needs(Feature.TOPICS)
def test_more_replicas_than_nodes_are_refused(client: Client, fresh_name: str) -> None:
    code = refusal(lambda: client.admin.create_topic(fresh_name, replication_factor=3))
    assert code == _INVALID_REPLICATION
    assert fresh_name not in client.admin.topics()


@needs(Feature.TOPICS, Feature.CONFIGS)
def test_a_bad_config_is_refused_at_creation(client: Client, fresh_name: str) -> None:
    bad = {"cleanup.policy": "sweep"}
    assert refusal(lambda: client.admin.create_topic(fresh_name, configs=bad)) == _INVALID_CONFIG
    assert fresh_name not in client.admin.topics()


@needs(Feature.TOPICS, Feature.DELETE_TOPICS)
def test_a_deleted_topic_is_gone_and_its_name_is_free(
    client: Client, reference: Client, topic: str, settle: Callable[[str, int], None]
) -> None:
    reference.produce(topic, [Message(value=b"old", partition=0)])
    client.admin.delete_topic(topic)
    wait_until(lambda: topic not in client.admin.topics(), within_s=60, what="still listed")
    assert refusal(lambda: client.admin.delete_topic(topic)) == _UNKNOWN_TOPIC
    client.admin.create_topic(topic)
    settle(topic, 1)
    assert reference.admin.offset_at(TopicPartition(topic, 0), "latest") == 0


@needs(Feature.PARTITIONS)
def test_partitions_are_added_and_never_taken(
    client: Client, reference: Client, topic: str, settle: Callable[[str, int], None]
) -> None:
    client.admin.add_partitions(topic, total=3)
    wait_until(lambda: reference.admin.topics()[topic] == 3, within_s=60, what="not grown")
    settle(topic, 3)
    reference.produce(topic, [Message(value=b"in the new one", partition=2)])
    assert reference.admin.offset_at(TopicPartition(topic, 2), "latest") == 1
    assert refusal(lambda: client.admin.add_partitions(topic, total=2)) == _INVALID_PARTITIONS


@needs(Feature.CONFIGS)
def test_configs_are_told_and_changed(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(retention_ms="3600000")
    told = client.admin.configs(topic)
    assert told["retention.ms"] == "3600000"
    assert told["cleanup.policy"] == "delete"
    assert {"max.message.bytes", "segment.bytes", "min.insync.replicas"} <= told.keys()
    client.admin.set_config(topic, name="retention.ms", value="7200000")
    wait_until(
        lambda: client.admin.configs(topic)["retention.ms"] == "7200000", within_s=60, what="not changed"
    )
    assert (
        refusal(lambda: client.admin.set_config(topic, name="retention.ms", value="long")) == _INVALID_CONFIG
    )
    assert client.admin.configs(topic)["retention.ms"] == "7200000"


@needs(Feature.DELETE_RECORDS)
def test_deleted_records_are_not_read_again(client: Client, reference: Client, topic: str) -> None:
    where = TopicPartition(topic, 0)
    reference.produce(topic, [Message(value=b"%d" % n, partition=0) for n in range(10)])
    assert client.admin.delete_records(where, before=4) == 4
    consumer = client.open(Reading(assign={where: "earliest"}))
    assert [record.offset for record in consumer.take(6)] == [4, 5, 6, 7, 8, 9]
    consumer.close()


@needs(Feature.GROUP_ADMIN)
def test_a_group_is_listed_and_described(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    members = [reference.open(Reading(topics=[wide_topic], group=group)) for _ in range(2)]
    wait_until(
        lambda: client.admin.describe_group(group) == Group(state="Stable", protocol="range", members=2),
        within_s=60,
        what=lambda: client.admin.describe_group(group),
    )
    assert group in client.admin.groups()
    for member in members:
        member.close()
    wait_until(
        lambda: client.admin.describe_group(group).members == 0,
        within_s=60,
        what=lambda: client.admin.describe_group(group),
    )
    assert client.admin.describe_group(group).state in {"Empty", "Dead"}


@needs(Feature.GROUP_ADMIN)
def test_committed_offsets_are_listed(client: Client, reference: Client, topic: str, group: str) -> None:
    where = TopicPartition(topic, 0)
    reference.produce(topic, [Message(value=b"v", partition=0)])
    member = reference.open(Reading(topics=[topic], group=group))
    member.take(1)
    member.commit({where: 1}, metadata="a note")
    ((found, (offset, note)),) = client.admin.group_offsets(group).items()
    assert (found, offset, note.rstrip("\0")) == (where, 1, "a note")  # librdkafka sends C's final zero along
    member.close()


@needs(Feature.GROUP_ADMIN, Feature.DELETE_GROUPS)
def test_a_group_is_deleted_when_it_is_empty_and_not_before(
    client: Client, reference: Client, topic: str, group: str
) -> None:
    reference.produce(topic, [Message(value=b"v", partition=0)])
    member = reference.open(Reading(topics=[topic], group=group))
    member.take(1)
    member.commit({TopicPartition(topic, 0): 1})
    assert refusal(lambda: client.admin.delete_group(group)) == _NON_EMPTY_GROUP
    member.close()
    wait_until(lambda: client.admin.describe_group(group).state == "Empty", within_s=60, what="not empty")
    client.admin.delete_group(group)
    assert group not in client.admin.groups()
    assert refusal(lambda: client.admin.delete_group(group)) == _GROUP_NOT_FOUND
