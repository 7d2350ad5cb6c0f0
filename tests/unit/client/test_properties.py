"""Kafka's property names: known ones with their types, unknown ones with a suggestion."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.client.properties import (
    CONSUMER_PROPERTIES,
    PRODUCER_PROPERTIES,
    Properties,
    client_from,
    consumer_config,
    producer_config,
)
from tailrace.model import ConfigError
from tailrace.records import Compression


def producer(**given: Any) -> Properties:
    return Properties(
        {name.replace("_", "."): value for name, value in given.items()}, known=PRODUCER_PROPERTIES
    )


def consumer(**given: Any) -> Properties:
    return Properties(
        {name.replace("_", "."): value for name, value in given.items()}, known=CONSUMER_PROPERTIES
    )


def test_a_producer_is_idempotent_unless_told_otherwise() -> None:
    config = producer_config(producer())
    assert (config.idempotent, config.acks) == (True, -1)
    assert not producer_config(producer(acks="1")).idempotent
    assert not producer_config(producer(enable_idempotence="false")).idempotent


def test_values_may_be_text_as_in_a_properties_file() -> None:
    given = producer(linger_ms="5", batch_size="100", compression_type="ZSTD", retries="3", buffer_memory=7)
    config = producer_config(given)
    assert (config.linger_s, config.batch_bytes, config.retries_max) == (0.005, 100, 3)
    assert config.compression is Compression.ZSTD
    assert config.buffer_bytes_max == 7


def test_a_consumer_takes_its_properties() -> None:
    given = consumer(
        group_id="g",
        session_timeout_ms="6000",
        enable_auto_commit="false",
        isolation_level="read_committed",
        auto_offset_reset="latest",
        partition_assignment_strategy="org.apache.kafka.clients.consumer.RoundRobinAssignor",
    )
    config = consumer_config(given)
    assert config.group is not None
    assert (config.group.group, config.group.session_timeout_s) == ("g", 6.0)
    assert config.group.strategies == ("roundrobin",)
    assert (config.auto_commit, config.fetch.read_committed, config.reset) == (False, True, "latest")


def test_a_consumer_without_a_reset_policy_misses_nothing() -> None:
    assert consumer_config(consumer()).reset == "earliest"
    assert consumer_config(consumer()).group is None


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("bootstrap_servers", "bootstrap.servers"),
        ("linger", "linger.ms"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean {suggestion}"):
        Properties({name: 1}, known=PRODUCER_PROPERTIES)


def test_a_name_of_the_other_side_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"group\.id is not a known property"):
        Properties({"group.id": "g"}, known=PRODUCER_PROPERTIES)


def test_names_that_tune_other_implementations_are_accepted() -> None:
    Properties({"max.in.flight.requests.per.connection": 5}, known=PRODUCER_PROPERTIES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "2"),
        ("linger.ms", "soon"),
        ("linger.ms", -1),
        ("batch.size", True),
        ("compression.type", "rar"),
        ("enable.idempotence", "perhaps"),
        ("max.request.size", 0),
    ],
)
def test_a_wrong_value_names_the_property(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        producer_config(Properties({name: value}, known=PRODUCER_PROPERTIES))


@pytest.mark.parametrize(
    ("name", "value"),
    [("auto.offset.reset", "newest"), ("isolation.level", "x"), ("partition.assignment.strategy", "sticky")],
)
def test_a_wrong_value_of_a_consumer_names_the_property(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        consumer_config(Properties({name: value, "group.id": "g"}, known=CONSUMER_PROPERTIES))


def test_idempotence_needs_all_acks() -> None:
    with pytest.raises(ConfigError, match="acks=all"):
        producer_config(producer(acks="1", enable_idempotence="true"))


def test_a_transactional_producer_takes_its_properties() -> None:
    config = producer_config(producer(transactional_id="tx", transaction_timeout_ms="1500", max_block_ms=50))
    assert (config.transactional_id, config.transaction_timeout_s, config.block_s) == ("tx", 1.5, 0.05)
    assert producer_config(producer()).transactional_id is None


@pytest.mark.parametrize(
    "given",
    [{"transactional_id": ""}, {"acks": "1"}, {"enable_idempotence": "false"}],
    ids=["empty", "acks", "idempotence"],
)
def test_a_transactional_id_needs_all_acks_and_idempotence(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        producer_config(producer(**({"transactional_id": "tx"} | given)))


def test_bootstrap_servers_are_needed_and_security_is_not_spoken() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        client_from(producer())
    with pytest.raises(ConfigError, match=r"security\.protocol"):
        client_from(producer(bootstrap_servers="h:1", security_protocol="SASL_SSL"))
