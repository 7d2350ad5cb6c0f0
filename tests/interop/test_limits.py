"""Large messages: up to the limit they pass, beyond it the client says error 10 and goes on."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.interop.clients.port import (
    Client,
    ClientError,
    Message,
    Placed,
    Producing,
    Reading,
    TopicPartition,
)

_MESSAGE_TOO_LARGE = 10


def read_one(client: Client, topic: str, *, fetch_bytes_max: int | None = None) -> bytes | None:
    """The first record's value."""
    start = {TopicPartition(topic, 0): "earliest"}
    consumer = client.open(Reading(assign=start, fetch_bytes_max=fetch_bytes_max))
    try:
        return consumer.take(1)[0].value
    finally:
        consumer.close()


def test_a_message_just_below_the_limit_passes(client: Client, topic: str) -> None:
    value = random.Random(1).randbytes(1_048_000)
    client.produce(topic, [Message(value=value, partition=0)])
    assert read_one(client, topic) == value


def test_a_record_larger_than_the_fetch_comes_whole(client: Client, reference: Client, topic: str) -> None:
    value = random.Random(2).randbytes(600_000)
    reference.produce(topic, [Message(value=value, partition=0)])
    assert read_one(client, topic, fetch_bytes_max=10_000) == value


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_message_over_the_limit_is_refused_and_the_next_one_is_taken(
    client: Client, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic(max_message_bytes="20000")
    too_large = Message(value=random.Random(3).randbytes(50_000), partition=0)
    with pytest.raises(ClientError) as refused:
        client.produce(topic, [too_large], Producing(codec=codec))
    assert refused.value.code == _MESSAGE_TOO_LARGE, refused.value
    placed = client.produce(topic, [Message(value=b"small", partition=0)], Producing(codec=codec))
    assert placed in ([Placed(0, 0)], [])
    assert read_one(client, topic) == b"small"


def test_a_topic_may_allow_more_than_the_default(client: Client, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes="4000000")
    value = random.Random(4).randbytes(3_000_000)
    client.produce(topic, [Message(value=value, partition=0)])
    assert read_one(client, topic, fetch_bytes_max=5_000_000) == value
