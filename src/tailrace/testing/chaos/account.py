"""What publishers and workers were told, against what is left in the topics.

I1   every confirmed publish is in the topic, at the offset that its publisher was told
I3   no id is there twice; what was tried and not confirmed may be there once
I10  every message was acknowledged by a worker or is a dead letter
     nothing is delivered that was sent after its acknowledgement was confirmed
     a dead letter tells where it comes from, why it is one and how often it was delivered
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.testing.chaos.notes import (
    ACKNOWLEDGED,
    ACKNOWLEDGING,
    CRASHING,
    DELIVERED,
    FAILED,
    PUBLISHED,
    TRYING,
    Note,
)

_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message in the topic."""

    id: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message in the dead-letter topic."""

    id: str
    origin: tuple[str, int]  # topic and offset
    reason: str
    deliveries: int


class Account:
    """Everything that was written down in one run."""

    def __init__(self, notes: Iterable[Note]) -> None:
        """The notes of one process after those of another, each in order."""
        self.tried: set[str] = set()
        self.published: dict[str, int] = {}  # id -> offset, -1 where the broker had forgotten it
        self.delivered: Counter[str] = Counter()
        self.acknowledged: dict[str, int] = {}  # id -> when it was first known to be confirmed
        self.crashes = 0
        self.unknown: set[str] = set()  # their acknowledgement was on its way when their worker died
        self._acknowledging: set[str] = set()  # by the process whose notes are being read
        self.trouble: list[str] = []
        self._sent_after: dict[str, int] = {}  # id -> when its last delivery was sent, at the earliest
        for note in notes:
            self._take(note)

    def __repr__(self) -> str:
        return (
            f"<Account: {len(self.published)} of {len(self.tried)} published, {self.delivered.total()}"
            f" deliveries, {len(self.acknowledged)} acknowledged, {len(self.unknown)} perhaps,"
            f" {self.crashes} crashes>"
        )

    def _take(self, note: Note) -> None:
        kind, id, number = note
        if kind == TRYING:
            self.tried.add(id)
        elif kind == PUBLISHED:
            self.published[id] = number
        elif kind == DELIVERED:
            self.delivered[id] += 1
            self._sent_after[id] = max(number, self._sent_after.get(id, 0))
        elif kind == ACKNOWLEDGING:
            self._acknowledging.add(id)
        elif kind == ACKNOWLEDGED:
            self._acknowledging.discard(id)
            self.acknowledged[id] = min(number, self.acknowledged.get(id, number))
        elif kind == CRASHING:
            self.crashes += 1
            self.unknown |= self._acknowledging
            self._acknowledging.clear()
        else:
            assert kind == FAILED, f"no note begins with {kind!r}"
            self.trouble.append(id)

    def check(self, stored: Sequence[Stored], letters: Sequence[Letter], *, topic: str) -> None:
        """AssertionError with everything that is wrong."""
        self._check_stored(stored)
        self._check_settled(stored, letters)
        self._check_confirmed()
        self._check_letters({each.id: each.offset for each in stored}, letters, topic)
        assert not self.trouble, "\n".join(self.trouble)

    def _check_stored(self, stored: Sequence[Stored]) -> None:
        there = {each.id: each.offset for each in stored}
        counts = Counter(each.id for each in stored)
        self._complain("confirmed and not in the topic", self.published.keys() - there.keys())
        self._complain("in the topic twice", (id for id, count in counts.items() if count > 1))
        self._complain("in the topic and never published", there.keys() - self.tried)
        moved = (id for id, at in self.published.items() if at >= 0 and there.get(id, at) != at)
        self._complain("not at the offset that its publisher was told", moved)

    def _check_settled(self, stored: Sequence[Stored], letters: Sequence[Letter]) -> None:
        settled = self.acknowledged.keys() | {letter.id for letter in letters}
        vanished = {each.id for each in stored} - settled - self.unknown
        self._complain("neither acknowledged nor a dead letter", vanished)
        self._complain("acknowledged, and nobody answered", self._acknowledging)

    def _check_confirmed(self) -> None:
        again = (
            f"{id} (sent {(self._sent_after[id] - at) / 1e6:.1f} ms after at least)"
            for id, at in self.acknowledged.items()
            if self._sent_after.get(id, 0) > at
        )
        self._complain("delivered again after its acknowledgement was confirmed", again)

    def _check_letters(self, there: dict[str, int], letters: Sequence[Letter], topic: str) -> None:
        wrong = (each for each in letters if each.origin != (topic, there.get(each.id, -1)))
        self._complain("a dead letter of an unknown origin", map(str, wrong))
        counts = Counter(each.id for each in letters)
        self._complain("with several dead letters", (id for id, count in counts.items() if count > 1))
        unexplained = (each for each in letters if not each.reason or each.deliveries < 1)
        self._complain("a dead letter without reason or count", map(str, unexplained))

    def _complain(self, what: str, ids: Iterable[str]) -> None:
        found = sorted(ids)
        if found:
            shown = ", ".join(found[:_SHOWN_MAX])
            self.trouble.append(f"{what}: {len(found)}, such as {shown}")
