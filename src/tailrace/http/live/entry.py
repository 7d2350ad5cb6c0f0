"""What a tail shows: a record, or offsets that are passed over, and where one goes on after it.

An entry is made once, however many tails show it: the record as JSON, its key and value for tails that look
for something, and what was shown up to it. That makes the event id, which `Last-Event-ID` brings back:

    c53e3dad062d/2:41             partition 2, offset 41: all there is to say of a topic with one partition
    c53e3dad062d/2:41,0:17,1:8    and the offsets that were last shown of the other partitions; -1: none

In front is which topic that was: of one that was made later under the same name, nothing was shown.

A tail of more than `NAMED_PARTITIONS_MAX` partitions has no ids. They would be longer than the records, and
nothing shorter is true: the time of a record does not tell what was shown of other partitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tailrace.broker.reading import record_bytes
from tailrace.http.error import HttpError, invalid
from tailrace.http.search import Search
from tailrace.records import Record
from tailrace.wire.json.record_json import view_record

NAMED_PARTITIONS_MAX: Final = 64
"""How many partitions an id names at most: it comes with every record."""

_ID = re.compile(r"([0-9a-f]{12})/(\d{1,10}:\d{1,19}(?:,\d{1,10}:(?:-1|\d{1,19}))*)", re.ASCII)
_ID_LENGTH_MAX = 32 * NAMED_PARTITIONS_MAX
_OVERHEAD_BYTES = 300  # of an entry in memory, beside its bytes

_encode = msgspec.json.Encoder().encode


class Entry:
    """One record of a partition; or a gap, which has no `json`, from `offset` up to `end`."""

    __slots__ = ("bytes", "end", "json", "key", "offset", "partition", "shown", "size", "timestamp", "value")

    def __init__(
        self,
        partition: int,
        offset: int,
        end: int,
        *,
        json: bytes | None = None,
        record_bytes: int = 0,
        shown: bytes = b"",
        timestamp: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.end = end  # the offset after it
        self.json = json
        self.bytes = record_bytes  # of the record as it is stored, for whoever counts what is read
        self.shown = shown  # up to it, of every partition; nothing if that would be too much
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.size = _OVERHEAD_BYTES + len(json or b"") + len(shown) + len(key or b"") + len(value or b"")

    def __repr__(self) -> str:
        kind = "gap" if self.json is None else "record"
        return f"<Entry {kind} {self.partition}:{self.offset}>"

    @property
    def weight(self) -> int:
        """How many records it stands for."""
        return 1 if self.json is not None else self.end - self.offset

    def with_shown(self, shown: bytes) -> Entry:
        """The same, for a tail that came another way."""
        return Entry(
            self.partition,
            self.offset,
            self.end,
            json=self.json,
            record_bytes=self.bytes,
            shown=shown,
            timestamp=self.timestamp,
        )


def record_entry(topic: str, partition: int, record: Record, *, shown: bytes = b"") -> Entry:
    """The entry of a record."""
    return Entry(
        partition,
        record.offset,
        record.offset + 1,
        json=_encode(view_record(topic, partition, record)),
        record_bytes=record_bytes(record),
        shown=shown,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Search):
    """Which records a tail shows."""

    partition: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it lets everything through."""
        return self.partition is None and self.key is None and not self.text


class Resumption(NamedTuple):
    """What an event id says."""

    mark: str  # of the topic
    shown: Mapping[int, int]  # by partition: the offset that was shown last


def write_shown(partition: int, offset: int, last: Mapping[int, int]) -> bytes:
    """What is shown with a record, where `last` are the offsets that were last, by partition; or nothing."""
    if len(last) <= 1:
        return b"%d:%d" % (partition, offset)
    if len(last) > NAMED_PARTITIONS_MAX:
        return b""
    others = [f",{each}:{at}" for each, at in last.items() if each != partition]
    return f"{partition}:{offset}{''.join(others)}".encode()


def read_event_id(text: str) -> Resumption:
    """What an id says; INVALID_REQUEST if it is none of ours."""
    found = _ID.fullmatch(text) if len(text) <= _ID_LENGTH_MAX else None
    if found is None:
        raise _not_an_id(text)
    pairs = [pair.split(":") for pair in found[2].split(",")]
    shown = {int(partition): int(offset) for partition, offset in pairs}
    if len(shown) != len(pairs):
        raise _not_an_id(text)
    return Resumption(found[1], shown)


def _not_an_id(text: str) -> HttpError:
    return invalid(f"Last-Event-ID {text[:60]!r} is none of a tail. Leave it out to begin with the newest")
