"""Where a read starts and ends, as options say it: a word, offsets by partition, or a time.

    startingOffsets             earliest | latest | {"orders": {"0": 23, "1": -2}}     -2 earliest, -1 latest
    startingTimestamp           1763290000000                                          ms since 1970
    startingOffsetsByTimestamp  {"orders": {"0": 1763290000000, "1": 1763290000000}}

and the same with `ending`. Of several the most precise wins, as in Spark's Kafka source: a timestamp, then
timestamps by partition, then offsets. Pure: resolving a place needs the broker and is done in lookup.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.client.offset_time import EARLIEST, LATEST
from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.options import Options

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_STRATEGIES = {"error": False, "latest": True}
_JSON_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One of: a word for all partitions, offsets, a time for all, times."""

    option: str
    """Which option said so, for errors."""
    word: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    else_latest: bool = True
    """Where no record is as late as the time: the end of the log, or else an error."""


def start_place(options: Options, *, default: str) -> Place:
    """Where a read starts."""
    else_latest = options.choice("startingOffsetsByTimestampStrategy", "error", _STRATEGIES)
    return _place(options, "starting", default=default, else_latest=else_latest)


def end_place(options: Options) -> Place:
    """Where a batch read ends."""
    return _place(options, "ending", default="latest", else_latest=True)


def check_batch(start: Place, end: Place) -> None:
    """A batch cannot start at an end that moves, nor end before everything, nor before it starts."""
    if start.word == LATEST or LATEST in start.offsets.values():
        raise ConfigError(
            f"option {start.option}: a batch read cannot start at the latest offset (latest, or -1)."
            " Use earliest, offsets or a timestamp, or read with readStream"
        )
    if end.word == EARLIEST or EARLIEST in end.offsets.values():
        raise ConfigError(
            f"option {end.option}: a batch read cannot end at the earliest offset (earliest, or -2)."
            " Use latest, offsets or a timestamp"
        )
    if start.time_ms is not None and end.time_ms is not None and start.time_ms > end.time_ms:
        raise ConfigError(
            f"option {end.option}: the end, {end.time_ms}, is before the start, {start.time_ms}."
            f" Give an end that is not before {start.option}"
        )
    _check_order(start, end, starts=start.times_ms, ends=end.times_ms)
    _check_order(start, end, starts=start.offsets, ends=end.offsets)


def _check_order(
    start: Place, end: Place, *, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """No partition ends before it starts, as far as that can be told: -2 and -1 are words."""
    for target, first in starts.items():
        last = ends.get(target, LATEST)
        if 0 <= last < first:
            raise ConfigError(
                f"option {end.option}: {target} ends at {last}, before its start at {first}."
                f" Give an end that is not before {start.option}"
            )


def _place(options: Options, side: str, *, default: str, else_latest: bool) -> Place:
    name = f"{side}Timestamp"
    if (time_ms := options.number(name, least=0)) is not None:
        return Place(option=name, time_ms=time_ms, else_latest=else_latest)
    name = f"{side}OffsetsByTimestamp"
    if (text := options.text(name)) is not None:
        return Place(option=name, times_ms=read_by_partition(name, text, least=0), else_latest=else_latest)
    name = f"{side}Offsets"
    text = options.text(name, default) or ""
    if text.lower() in _WORDS:
        return Place(option=name, word=_WORDS[text.lower()])
    if not text.startswith("{"):
        raise ConfigError(
            f"option {name}={text!r} is not possible. Use earliest, latest, or offsets: {_JSON_EXAMPLE}"
        )
    return Place(option=name, offsets=read_by_partition(name, text, least=EARLIEST))


def read_by_partition(name: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    """Numbers by topic and partition, from JSON."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {name}={text!r} is not JSON ({error}). Use {_JSON_EXAMPLE}") from None
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise ConfigError(f"option {name}={text!r} is not by topic and partition. Use {_JSON_EXAMPLE}")
    found: dict[TopicPartition, int] = {}
    for topic, numbers in given.items():
        for partition, number in numbers.items():
            target = TopicPartition(topic, _partition(name, partition))
            if type(number) is not int or not least <= number <= _INT64_MAX:
                raise ConfigError(
                    f"option {name}: {number!r} of {target} is not a whole number of at least {least}"
                )
            found[target] = number
    return found


def read_assignment(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Topics and their partitions, from JSON: {"orders": [0, 1]}."""
    example = '{"orders": [0, 1]}'
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {name}={text!r} is not JSON ({error}). Use {example}") from None
    if not isinstance(given, dict) or not all(isinstance(each, list) for each in given.values()):
        raise ConfigError(f"option {name}={text!r} is not partitions by topic. Use {example}")
    found = {TopicPartition(topic, _partition(name, str(p))) for topic, parts in given.items() for p in parts}
    if not found:
        raise ConfigError(f"option {name}={text!r} names no partition. Use {example}")
    return tuple(sorted(found))


def _partition(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"option {name}: {text!r} is not a partition. Partitions are 0, 1, 2 and so on")
    return int(text)
