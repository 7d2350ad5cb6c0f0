"""Every message in every version: our bytes against those of kafka-python and kio, and theirs read by us."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.wire.kafka.generated import CASES, MESSAGE_TYPES, full, messages, sample, versions_of
from tests.unit.wire.kafka.oracle import (
    kafka_python_bytes,
    kafka_python_knows,
    kafka_python_rewrites,
    kafka_python_type,
    kio_bytes,
    kio_reads,
    to_kio,
)

from tailrace.wire.kafka import Message, decode, encode

every_message = pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda each: each.__name__)


@every_message
def test_our_bytes_are_theirs_in_every_version(message_type: type[Message]) -> None:
    dice = random.Random(message_type.__name__)
    for version in versions_of(message_type):
        for _ in range(10):
            message = sample(message_type, version, dice)
            ours = encode(message, version)
            if kafka_python_knows(message_type):
                assert ours == kafka_python_bytes(message, version), version
            assert ours == kio_bytes(message, version), version
            assert decode(message_type, version, ours) == message, version


@settings(max_examples=100)
@given(data=st.data())
def test_any_message_that_can_be_found_to_differ(data: st.DataObject) -> None:
    message_type, version = data.draw(st.sampled_from(CASES))
    message = data.draw(messages(message_type, version))
    ours = encode(message, version)
    if kafka_python_knows(message_type):
        assert ours == kafka_python_bytes(message, version)
    assert decode(message_type, version, ours) == message


@every_message
def test_they_read_a_full_message_of_ours(message_type: type[Message]) -> None:
    for version in versions_of(message_type):
        message = full(message_type, version)
        ours = encode(message, version)
        assert kio_reads(message_type, version, ours) == to_kio(message, version), version
        if kafka_python_knows(message_type):
            assert kafka_python_rewrites(message_type, version, ours) == ours, version


@every_message
def test_we_read_a_full_message_of_theirs(message_type: type[Message]) -> None:
    for version in versions_of(message_type):
        message = full(message_type, version)
        if kafka_python_knows(message_type):
            theirs = memoryview(kafka_python_bytes(message, version))
            assert decode(message_type, version, theirs) == message
        assert decode(message_type, version, kio_bytes(message, version)) == message


@pytest.mark.parametrize(
    "message_type",
    [each for each in MESSAGE_TYPES if kafka_python_knows(each)],
    ids=lambda each: each.__name__,
)
def test_defaults_are_theirs_apart_from_null(message_type: type[Message]) -> None:
    # Null is our default wherever it is allowed; kafka-python has null for ids and sets for bits.
    message = message_type()
    version = versions_of(message_type)[-1]
    theirs = kafka_python_type(message_type)(version=version)
    for name in message.__struct_fields__:
        ours = getattr(message, name)
        if ours is not None and not name.endswith(("_id", "authorized_operations")):
            assert getattr(theirs, name) == ours, name
