"""A subscription's settings as texts: each is read, checked, and written back; what is wrong is named."""

from __future__ import annotations

import pytest

from tailrace.broker.subscriptions.definition import (
    EARLIEST,
    LATEST,
    SUBSCRIPTION_CONFIGS,
    Guarantee,
    Mode,
    Order,
    Start,
    StartKind,
    SubscriptionConfig,
)
from tailrace.model import BrokerError, ErrorCode


def read(**settings: str) -> SubscriptionConfig:
    return SubscriptionConfig.read("workers", "orders", settings)


def refusal(**settings: str) -> str:
    with pytest.raises(BrokerError) as caught:
        read(**settings)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    return str(caught.value)


def test_what_is_not_said_has_a_default() -> None:
    assert read() == SubscriptionConfig(
        name="workers",
        topic="orders",
        mode=Mode.SHARED,
        delivery=Guarantee.AT_LEAST_ONCE,
        ack_timeout_ms=30_000,
        max_deliveries=5,
        backoff_ms=1_000,
        backoff_ms_max=60_000,
        unacked_max=10_000,
        priority=False,
        order=Order.PARTITION,
        dead_letter_topic="workers.dlq",
    )
    assert read().settings() == {}


EVERYTHING = {
    "mode": "failover",
    "delivery": "at_most_once",
    "ack_timeout_ms": "5000",
    "max_deliveries": "0",
    "backoff_ms": "0",
    "backoff_ms_max": "100",
    "unacked_max": "7",
    "priority": "true",
    "order": "partition",
    "dead_letter_topic": "graveyard",
}


def test_every_setting_is_read() -> None:
    config = read(**EVERYTHING)
    assert (config.mode, config.delivery, config.priority) == (Mode.FAILOVER, Guarantee.AT_MOST_ONCE, True)
    assert (config.ack_timeout_ms, config.max_deliveries, config.unacked_max) == (5000, 0, 7)
    assert (config.backoff_ms, config.backoff_ms_max, config.dead_letter_topic) == (0, 100, "graveyard")
    assert read(order="timestamp").order is Order.TIMESTAMP
    assert EVERYTHING.keys() == SUBSCRIPTION_CONFIGS.keys()


def test_what_differs_from_the_defaults_is_enough_to_read_it_again() -> None:
    config = read(**EVERYTHING)
    assert config.settings() == {name: text for name, text in EVERYTHING.items() if name != "order"}
    assert read(**config.settings()) == config


def test_a_default_that_is_said_is_no_difference() -> None:
    assert read(mode="shared", max_deliveries="5", dead_letter_topic="workers.dlq").settings() == {}


def test_an_unknown_setting_is_refused_with_the_one_that_was_meant() -> None:
    assert "Did you mean ack_timeout_ms?" in refusal(ack_timeout="5")
    assert "'zzz'" in refusal(zzz="5")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mode", "Shared"),
        ("mode", ""),
        ("delivery", "exactly_once"),
        ("order", "key"),
        ("priority", "yes"),
        ("ack_timeout_ms", "0"),
        ("ack_timeout_ms", "30s"),
        ("ack_timeout_ms", "604800001"),
        ("max_deliveries", "-1"),
        ("max_deliveries", "1000001"),
        ("backoff_ms", "-1"),
        ("backoff_ms", ""),
        ("backoff_ms_max", "1.5"),
        ("unacked_max", "0"),
        ("unacked_max", "100001"),
        ("unacked_max", "9" * 30),
        ("dead_letter_topic", "a b"),
        ("dead_letter_topic", ".."),
        ("dead_letter_topic", "x" * 250),
        ("dead_letter_topic", "__consumer_offsets"),
        ("dead_letter_topic", "orders"),
    ],
)
def test_a_value_that_is_not_accepted_is_refused_by_name(name: str, text: str) -> None:
    assert name in refusal(**{name: text})


def test_a_first_back_off_above_the_longest_is_refused() -> None:
    assert "Try: backoff_ms_max=70000" in refusal(backoff_ms="70000")
    assert read(backoff_ms="70000", backoff_ms_max="70000").backoff_ms == 70_000


@pytest.mark.parametrize("other", [{"mode": "key_shared"}, {"order": "timestamp"}])
def test_priority_does_not_go_with_an_order_to_keep(other: dict[str, str]) -> None:
    assert "priority" in refusal(priority="true", **other)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 246, "x" * 100_000])
def test_a_name_that_cannot_be_is_refused_in_a_short_message(name: str) -> None:
    with pytest.raises(BrokerError, match="not a legal name of a subscription") as caught:
        SubscriptionConfig.read(name, "orders", {})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert len(str(caught.value)) < 400


def test_the_longest_name_leaves_room_for_the_dead_letter_topic() -> None:
    assert len(SubscriptionConfig.read("x" * 245, "orders", {}).dead_letter_topic) == 249


def test_a_topic_that_cannot_be_is_refused() -> None:
    with pytest.raises(BrokerError) as caught:
        SubscriptionConfig.read("workers", "a/b", {})
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("offset:0", Start(StartKind.OFFSET, 0)),
        ("offset:9223372036854775807", Start(StartKind.OFFSET, 2**63 - 1)),
        ("time:1700000000000", Start(StartKind.TIME, 1_700_000_000_000)),
    ],
)
def test_a_start_is_read_and_written(text: str, start: Start) -> None:
    assert Start.parse(text) == start
    assert str(start) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Earliest",
        "earliest:0",
        "offset",
        "offset:",
        "offset:-1",
        "offset:+1",
        "offset: 1",
        "offset:1 ",
        "offset:٣",
        "offset:9223372036854775808",
        "offset:" + "9" * 10_000,
        "time:1.5",
        "time:now",
        "earliest\n",
    ],
)
def test_what_is_no_start_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(BrokerError, match="Try: earliest, latest, offset:N, or time:MS") as caught:
        Start.parse(text)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(str(caught.value)) < 400
