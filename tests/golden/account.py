"""An account of what was published, acknowledged, refused and delayed, kept apart from the broker's own.

It tells which messages every subscription must still deliver: all of its topic from its start on, without
those that are settled. A refused message counts one delivery more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Header = tuple[str, bytes | None]
Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(slots=True)
class Progress:
    """One subscription."""

    topic: str
    start: int
    settled: set[Place] = field(default_factory=set)
    failures: dict[Place, int] = field(default_factory=dict)
    redriven: dict[Place, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Account:
    """Everything that happened, as the program that made it happen knows it."""

    records: dict[Place, dict[str, Any]] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    delayed_messages: list[dict[str, Any]] = field(default_factory=list)
    stream_done: list[list[int]] = field(default_factory=list)
    stream_planned: list[list[int]] = field(default_factory=list)

    def sent(self, place: Place, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        """A record has its place."""
        assert place not in self.records, f"{place} was sent twice"
        self.records[place] = row(place, key, value, headers)

    def subscribed(self, name: str, topic: str, *, start: int = 0) -> None:
        """A subscription exists."""
        self.progress[name] = Progress(topic, start)

    def unsubscribed(self, name: str) -> None:
        """It does no more."""
        del self.progress[name]

    def settled(self, name: str, place: Place) -> None:
        """A message is never delivered again: acknowledged, dead, expired, or sent at most once."""
        self.progress[name].settled.add(place)

    def failed(self, name: str, place: Place) -> None:
        """A delivery was refused, and counts."""
        failures = self.progress[name].failures
        failures[place] = failures.get(place, 0) + 1

    def redriven(self, name: str, place: Place, value: bytes, headers: Sequence[Header]) -> None:
        """A dead letter is to be delivered again, from the dead-letter topic."""
        self.progress[name].redriven[place] = row(place, None, value, headers)

    def delayed(self, topic: str, partition: int, due_ms: int, key: bytes | None, value: bytes) -> None:
        """A message waits for its time."""
        self.delayed_messages.append(
            {
                "topic": topic,
                "partition": partition,
                "due_ms": due_ms,
                "key": shown(key),
                "value": shown(value),
            }
        )

    def pending(self) -> dict[str, list[dict[str, Any]]]:
        """What each subscription must still deliver, by place."""
        return {name: self._pending(each) for name, each in sorted(self.progress.items())}

    def _pending(self, progress: Progress) -> list[dict[str, Any]]:
        own = {
            place: record
            for place, record in self.records.items()
            if place[0] == progress.topic and place[2] >= progress.start
        }
        return [
            {**record, "delivery": 1 + progress.failures.get(place, 0)}
            for place, record in sorted({**own, **progress.redriven}.items())
            if place not in progress.settled
        ]


def row(place: Place, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> dict[str, Any]:
    """A record as JSON."""
    topic, partition, offset = place
    shown_headers = [[name, shown(each)] for name, each in headers]
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": shown(key),
        "value": shown(value),
        "headers": shown_headers,
    }


def shown(data: bytes | None) -> str | None:
    """Bytes as text that tells all of them apart: UTF-8 where they are, else hexadecimal."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"hex:{data.hex()}"
    assert not text.startswith("hex:"), "it would be taken for hexadecimal"
    return text
