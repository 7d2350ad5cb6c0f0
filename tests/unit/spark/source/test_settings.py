"""The options of a read: Spark's names, defaults and refusals."""

from __future__ import annotations

import pickle

import pytest

from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.source.settings import batch_settings, includes_headers, stream_settings

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def with_options(**given: str) -> dict[str, str]:
    return BASE | {name.replace("__", "."): value for name, value in given.items()}


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    assert (batch_settings(BASE).start.word, batch_settings(BASE).end.word) == (EARLIEST, LATEST)
    assert stream_settings(BASE).start.word == LATEST


def test_defaults_are_spark_s() -> None:
    settings = stream_settings(BASE)
    assert settings.fail_on_data_loss
    assert not settings.include_headers
    assert not settings.read_committed
    assert settings.trigger_delay_ms_max == 15 * 60 * 1000
    assert settings.trigger_offsets_max is None


def test_settings_travel_to_workers() -> None:
    settings = stream_settings(with_options(startingOffsets='{"orders": {"0": 5}}'))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_subscription_is_names_a_pattern_or_partitions() -> None:
    rest = {"kafka.bootstrap.servers": "a:1"}
    assert batch_settings(rest | {"subscribe": "b, a,,"}).topics.names == ("a", "b")
    pattern = batch_settings(rest | {"subscribePattern": r"\p{Lower}.*"}).topics.pattern
    assert pattern is not None
    assert pattern.fullmatch("orders")
    assert batch_settings(rest | {"assign": '{"a": [1, 0]}'}).topics.assigned == (
        TopicPartition("a", 0),
        TopicPartition("a", 1),
    )


def test_the_most_precise_start_wins() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"orders": {"0": 7}}',
        "startingTimestamp": "9",
    }
    assert stream_settings(with_options(**given)).start.time_ms == 9
    del given["startingTimestamp"]
    assert stream_settings(with_options(**given)).start.times_ms == {TopicPartition("orders", 0): 7}


@pytest.mark.parametrize("name", ["isolation__level", "kafka__isolation__level"])
def test_the_isolation_level_goes_by_both_names(name: str) -> None:
    assert stream_settings(with_options(**{name: "read_committed"})).read_committed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"assign": "{}"}, "has subscribe and assign"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch read cannot start at the latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets: a batch read cannot start"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch read cannot end at the earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets: a batch read cannot end"),
        ({"startingOffsets": "newest"}, "startingOffsets='newest' is not possible. Use earliest, latest"),
        ({"startingOffsets": "{"}, "startingOffsets='{' is not JSON"),
        ({"startingOffsets": '{"orders": 5}'}, "is not by topic and partition"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets: -3 of orders-0"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "startingOffsets: True of orders-0"),
        ({"startingOffsets": '{"orders": {"zero": 1}}'}, "'zero' is not a partition"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'},
            "startingOffsetsByTimestamp: -1 of orders-0",
        ),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday' is not a whole number"),
        ({"startingOffsetsByTimestampStrategy": "nearest"}, "Use one of: error, latest"),
        ({"kafka__auto__offset__reset": "earliest"}, "auto.offset.reset=.* Set startingOffsets"),
        ({"kafka__key__deserializer": "x"}, r"key.deserializer=.*CAST\(key AS STRING\)"),
        ({"kafka__enable__auto__commit": "true"}, "enable.auto.commit=.* set publishGroup"),
        ({"topic": "orders"}, "topic='orders' is not supported: it is for writing. To read set subscribe"),
        ({"isolation__level": "snapshot"}, "isolation.level='snapshot' is not possible"),
        ({"isolation__level": "read_committed", "kafka__isolation__level": "read_uncommitted"}, "differ"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger=5 is more than"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' is not a whole number"),
        ({"publishGroup": " "}, "publishGroup is empty"),
        ({"maxOffsetPerTrigger": "7"}, "Did you mean maxOffsetsPerTrigger"),
    ],
)
def test_what_cannot_be_is_refused_by_option_value_and_fix(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        batch_settings(with_options(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs one of the options subscribe, subscribePattern, assign, and this one has none"),
        ({"subscribe": " , "}, "subscribe=',' names no topic"),
        ({"subscribePattern": "("}, r"subscribePattern='\(' is not a regular expression"),
        ({"subscribePattern": ""}, "subscribePattern is empty"),
        ({"assign": '{"a": 1}'}, "is not partitions by topic"),
        ({"assign": "{}"}, "names no partition"),
        ({"assign": '{"a": [-1]}'}, "'-1' is not a partition"),
    ],
)
def test_a_subscription_that_names_nothing_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        includes_headers({"kafka.bootstrap.servers": "a:1"} | given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is for batch reads"):
        stream_settings(with_options(**{name: "latest"}))
