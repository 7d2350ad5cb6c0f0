"""The public admin client and the public exceptions, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.port import refusing_port

import tailrace
import tailrace.client
from tailrace import errors
from tailrace.client import AdminClient, MessageConsumer, TopicPartition


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def admin(broker: tailrace.Broker) -> Iterator[AdminClient]:
    with AdminClient(broker.bootstrap_servers) as connected:
        yield connected


def test_a_topic_is_made_listed_described_changed_and_deleted(
    broker: tailrace.Broker, admin: AdminClient
) -> None:
    admin.create_topic("orders", partitions=2, configs={"retention.ms": 60_000})
    broker.produce("orders", b"v", partition=1)
    assert admin.list_topics() == ["orders"]
    found = admin.describe_topic("orders")
    assert (found.name, found.internal, found.configs["retention.ms"]) == ("orders", False, "60000")
    assert [(each.start_offset, each.end_offset) for each in found.partitions] == [(0, 0), (0, 1)]
    admin.alter_configs("orders", {"retention.ms": 1_000})
    admin.add_partitions("orders", 3)
    found = admin.describe_topic("orders")
    assert (len(found.partitions), found.configs["retention.ms"]) == (3, "1000")
    admin.delete_topic("orders")
    assert admin.list_topics() == []


def test_a_group_is_listed_described_and_deleted(broker: tailrace.Broker, admin: AdminClient) -> None:
    broker.produce("orders", b"v")
    with MessageConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.poll(100):
            pass
        consumer.commit()
        found = admin.describe_group("g")
        assert (found.name, found.state, len(found.members)) == ("g", "Stable", 1)
        assert found.offsets == {TopicPartition("orders", 0): 1}
    assert admin.list_groups() == ["g"]
    admin.delete_group("g")
    assert admin.list_groups() == []


def test_what_is_not_there_is_an_error_of_the_public_module(admin: AdminClient) -> None:
    for verb in (admin.describe_topic, admin.delete_topic):
        with pytest.raises(errors.UnknownTopic):
            verb("absent")
    with pytest.raises(errors.BrokerError) as caught:
        admin.describe_group("absent")
    assert caught.value.code == errors.ErrorCode.GROUP_ID_NOT_FOUND


def test_a_closed_client_says_so_and_may_be_closed_again(admin: AdminClient) -> None:
    admin.close()
    admin.close()
    with pytest.raises(errors.ClientClosed):
        admin.list_topics()


def test_no_broker_is_an_error_at_once() -> None:
    with refusing_port() as port, pytest.raises(errors.CannotConnect, match="Try: tailrace up"):
        AdminClient(f"127.0.0.1:{port}")


def test_every_public_exception_is_a_tailrace_error() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.TailraceError) or kind is errors.ErrorCode


def test_the_names_of_the_client_package_are_shown() -> None:
    assert {"AdminClient", "BrokerClient", "MessageProducer"} <= set(dir(tailrace.client))
    for name in dir(tailrace.client):
        assert getattr(tailrace.client, name) is not None
