"""A batch read whose end lies before its start, which Spark's own Kafka source refuses too."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.spark.source.settings import batch_settings

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def by_partition(first: int, second: int) -> str:
    return f'{{"t": {{"0": {first}, "1": {second}}}}}'


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"startingTimestamp": "8"}, {"endingTimestamp": "7"}),
        (
            {"startingOffsetsByTimestamp": by_partition(1, 8)},
            {"endingOffsetsByTimestamp": by_partition(1, 7)},
        ),
        ({"startingOffsets": by_partition(1, 8)}, {"endingOffsets": by_partition(1, 7)}),
    ],
)
def test_an_end_before_the_start_is_refused_by_name(start: dict[str, str], end: dict[str, str]) -> None:
    (option,) = end
    with pytest.raises(ConfigError, match=f"option {option}.*before.*{next(iter(start))}"):
        batch_settings({**GIVEN, **start, **end})


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "8", "endingTimestamp": "8"},
        {"startingOffsets": by_partition(8, 9), "endingOffsets": by_partition(8, -1)},
        {"startingOffsets": by_partition(-2, 9), "endingOffsets": by_partition(0, 10)},
        {"startingOffsets": by_partition(8, 9), "endingTimestamp": "1"},
    ],
)
def test_what_cannot_be_told_before_the_broker_is_asked_is_left_to_it(options: dict[str, str]) -> None:
    assert batch_settings({**GIVEN, **options}).topics is not None
