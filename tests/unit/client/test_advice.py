"""What newcomers get wrong, tried on a real broker: the error names a way out that works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tailrace
from tailrace.client import BrokerClient, MessageConsumer, MessageProducer
from tailrace.model import BrokerError, ConfigError


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: tailrace.Broker) -> Iterator[BrokerClient]:
    host, _, port = broker.native_address.rpartition(":")
    with BrokerClient(host, int(port)) as connected:
        yield connected


@pytest.mark.parametrize("body", [{"a": 1}, [1, 2], 5, 1.5, True, (1,)])
def test_a_body_without_an_encoding_is_refused_and_named(
    client: BrokerClient, broker: tailrace.Broker, body: Any
) -> None:
    kind = type(body).__name__
    with pytest.raises(TypeError, match=rf"^body must be bytes, text or None, not {kind}\. Try: json\.dumps"):
        client.publish("bodies", body)
    with pytest.raises(TypeError, match=rf"not {kind}\. Try: json\.dumps\(value\)\.encode\(\)$"):
        broker.produce("bodies", body)


def test_an_object_that_is_no_data_is_not_advised_to_be_json(client: BrokerClient) -> None:
    with pytest.raises(TypeError, match=r"not object\. Encode it first$"):
        client.publish("bodies", object())  # type: ignore[arg-type]


def test_text_for_an_embedded_broker_names_its_encoding(broker: tailrace.Broker) -> None:
    with pytest.raises(TypeError, match=r"not str\. Try: value\.encode\(\)$"):
        broker.produce("bodies", "text")  # type: ignore[arg-type]


def test_a_key_without_an_encoding_is_refused_and_named(client: BrokerClient) -> None:
    with pytest.raises(TypeError, match=r"^key must be bytes, .* not int\. Try: json\.dumps\(key\)$"):
        client.publish("bodies", b"x", key=7)  # type: ignore[arg-type]


def test_a_property_without_an_encoding_is_refused_and_named(client: BrokerClient) -> None:
    with pytest.raises(TypeError, match=r"not dict\. Try: json\.dumps"):
        client.publish("bodies", b"x", properties={"a": {"b": 1}})  # type: ignore[dict-item]


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x"), "x"])
def test_every_body_with_an_encoding_is_published(
    client: BrokerClient, broker: tailrace.Broker, body: bytes | bytearray | memoryview | str
) -> None:
    where = client.publish("sound", body)
    assert list(broker.read("sound"))[where.offset].value == b"x"


def test_a_topic_setting_may_be_written_as_python_writes_names(client: BrokerClient) -> None:
    client.create_topic("timed", retention_ms=60_000, cleanup_policy="compact")
    same: dict[str, Any] = {"retention.ms": 60_000, "cleanup.policy": "compact"}
    client.create_topic("timed", **same)
    with pytest.raises(BrokerError, match="exists"):
        client.create_topic("timed", retention_ms=1)


def test_settings_may_be_given_as_configs_as_everywhere(
    client: BrokerClient, broker: tailrace.Broker
) -> None:
    client.create_topic("by-configs", configs={"retention.ms": 60_000})
    client.create_topic("by-configs", retention_ms=60_000)
    assert client.describe_topic("by-configs")["configs"]["retention.ms"] == "60000"
    client.create_subscription("by-configs", "by-configs", configs={"max_deliveries": 2})
    client.create_subscription("by-configs", "by-configs", max_deliveries=2)
    assert client.describe_subscription("by-configs")["configs"] == {"max_deliveries": "2"}
    with client.subscribe("by-configs", name="joined", configs={"mode": "exclusive"}):
        assert client.describe_subscription("joined")["mode"] == "exclusive"


def test_a_misspelt_topic_setting_is_suggested(client: BrokerClient) -> None:
    with pytest.raises(BrokerError, match=r"Did you mean retention\.ms\?"):
        client.create_topic("other", retentoin_ms=1)


def test_a_reserved_name_is_no_setting(client: BrokerClient) -> None:
    with pytest.raises(ConfigError, match='"_topic" begins with "_"'):
        client.create_topic("other", _topic="x")


def test_a_setting_of_an_embedded_broker_is_suggested() -> None:
    with pytest.raises(ConfigError, match=r"num_partitions is neither .*\. Did you mean num\.partitions\?"):
        tailrace.Broker(configs={"num_partitions": 2})


@pytest.mark.parametrize("kind", [MessageProducer, MessageConsumer])
def test_an_address_in_place_of_properties_is_told_what_they_are(kind: type) -> None:
    with pytest.raises(TypeError, match=r'\{"bootstrap\.servers": "127\.0\.0\.1:9092"\}, not .127.0.0.1:1.'):
        kind("127.0.0.1:1")


def test_a_topic_in_place_of_a_record_is_told_what_a_record_is(broker: tailrace.Broker) -> None:
    with (
        MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer,
        pytest.raises(TypeError, match=r"Try: send\(tailrace\.client\.ProducerRecord\(topic, value\)\)"),
    ):
        producer.send("orders", b"x")  # type: ignore[arg-type]
