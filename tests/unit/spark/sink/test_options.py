"""The options of the sink: what they come to, and what is said about those that are wrong."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.records import Compression
from tailrace.spark.sink.options import ProducingSettings, read_settings

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_only_the_servers_are_needed() -> None:
    settings = read_settings(SERVERS)
    assert settings.link.bootstrap_servers == "127.0.0.1:9092"
    assert settings.topic is None
    assert settings.producing == ProducingSettings()


def test_everything_that_can_be_set() -> None:
    settings = read_settings(
        {
            **SERVERS,
            "Topic": "orders",
            "delivery": "at-least-once",
            "kafka.compression.type": "ZSTD",
            "kafka.batch.size": "100000",
            "kafka.max.request.size": "2000000",
            "kafka.buffer.memory": "5000000",
            "kafka.delivery.timeout.ms": "1500",
            "kafka.acks": "-1",
        }
    )
    assert settings.topic == "orders"
    assert settings.producing == ProducingSettings(
        compression=Compression.ZSTD,
        batch_bytes_max=100_000,
        request_bytes_max=2_000_000,
        in_flight_bytes_max=5_000_000,
        delivery_timeout_s=1.5,
    )


def test_exactly_once_is_asked_for_and_at_least_once_is_the_default() -> None:
    assert not read_settings(SERVERS).exactly_once
    settings = read_settings(
        {
            **SERVERS,
            "delivery": "Exactly-Once",
            "failOnDataLoss": "false",
            "kafka.transaction.timeout.ms": "5000",
            "checkpointLocation": "/somewhere",
        }
    )
    assert settings.exactly_once and not settings.fails_on_loss
    assert (settings.transaction_timeout_ms, settings.checkpoint) == (5000, "/somewhere")


def test_a_batch_is_never_larger_than_a_request() -> None:
    settings = read_settings({**SERVERS, "kafka.batch.size": "5000", "kafka.max.request.size": "3000"})
    assert settings.producing.batch_bytes_max == settings.producing.request_bytes_max == 3000


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_every_number_of_acknowledgements_is_taken(acks: str) -> None:
    read_settings({"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.acks": acks})


@pytest.mark.parametrize(
    "option",
    [
        {"kafka.linger.ms": "5"},
        {"kafka.enable.idempotence": "true"},
        {"includeHeaders": "true"},
        {"kafka.retries": "3"},
        {"queryName": "q"},
    ],
)
def test_what_has_no_meaning_here_is_taken(option: dict[str, str]) -> None:
    assert read_settings({**SERVERS, **option}) == read_settings(SERVERS)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"topics": "orders"}, r"'topics' is not known\. Did you mean topic\?"),
        ({"compression.type": "lz4"}, r"Did you mean kafka\.compression\.type\?"),
        ({"topic": " "}, "topic is empty"),
        ({"delivery": "maybe"}, "delivery='maybe' is not possible. Use one of: at-least-once, exactly-once"),
        ({"kafka.acks": "2"}, r"kafka\.acks='2' is not possible.*Use all"),
        (
            {"kafka.compression.type": "rar"},
            "'rar' is not possible. Use one of: none, gzip, snappy, lz4, zstd",
        ),
        ({"kafka.batch.size": "0"}, r"kafka\.batch\.size='0' is not a whole number\. Use 1 or more"),
        ({"kafka.batch.size": "1k"}, r"kafka\.batch\.size='1k'"),
        ({"kafka.buffer.memory": "99999999999"}, r"kafka\.buffer\.memory=99999999999 is too large"),
        ({"kafka.value.serializer": "X"}, "Cast the column value to binary or string"),
        ({"kafka.partitioner.class": "X"}, "column partition"),
        ({"kafka.transactional.id": "t"}, "query and task name it.*delivery=exactly-once"),
        ({"kafka.bootstrap.servers": "here:there"}, r"kafka\.bootstrap\.servers='here:there'"),
        ({"kafka.bootstrap.servers": ""}, r"kafka\.bootstrap\.servers is missing"),
    ],
)
def test_a_wrong_option_is_named_with_its_fix(option: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_settings({**SERVERS, **option})
