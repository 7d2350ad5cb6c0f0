"""The oracle of transactions: what each one wrote, how it was ended, and what readers may see of it.

Every transaction has a serial number, and every value begins with that number. A group position that a
transaction commits is its serial number, in a partition that belongs to its transactional id.

- A transaction shows all of its records or none, in every cut through all partitions.
- What is committed, and was answered, is shown. What was aborted, or never asked to commit, is not.
- What was shown once is shown for ever. No record is there twice.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace.model import TopicPartition


class Wrong(Exception):
    """A reader sees what it must not, or lacks what it must see."""


class Fate(enum.Enum):
    """How a transaction ended, as far as its producer knows."""

    OPEN = "open: no commit was sent"
    SENT = "a commit was sent, and not answered"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Attempt:
    """One transaction."""

    serial: int
    name: str  # its transactional id
    values: dict[TopicPartition, list[bytes]] = field(default_factory=dict)  # those that were acknowledged
    has_position: bool = False  # it commits a position of the group
    fate: Fate = Fate.OPEN
    shown: bool = False  # a reader saw it as committed

    @property
    def is_committed(self) -> bool:
        return self.shown or self.fate is Fate.COMMITTED


@dataclass(slots=True, kw_only=True)
class Seen:
    """One partition, as a reader finds it."""

    stored: Mapping[bytes, int]  # offset by value, of everything that is there
    shown: list[bytes]  # to readers of committed records
    last_stable: int
    due: list[bytes]  # the values of transactions that were committed before it was read


class Oracle:
    """Knows every transaction of a history."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def begin(self, name: str) -> Attempt:
        attempt = Attempt(len(self.attempts), name)
        self.attempts.append(attempt)
        return attempt

    def due(self, tp: TopicPartition) -> list[bytes]:
        """What a reader that begins now must find in a partition."""
        return [value for each in self.attempts if each.is_committed for value in each.values.get(tp, ())]

    def check(self, cut: Iterable[tuple[TopicPartition, Seen]]) -> None:
        """Compare what was read, one partition after the other, with what was done."""
        decided: dict[int, bool] = {}  # by serial: whether the partitions before showed it
        for tp, seen in cut:
            shown = set(seen.shown)
            if len(shown) != len(seen.shown):
                raise Wrong(f"{tp} shows a record twice")
            if not shown <= seen.stored.keys():
                raise Wrong(f"{tp} shows {sorted(shown - seen.stored.keys())}, which are not there")
            for value, offset in seen.stored.items():
                if offset < seen.last_stable:
                    self._check_value(tp, value, decided, is_shown=value in shown)
            missing = [value for value in seen.due if value not in seen.stored]
            if missing:
                raise Wrong(f"{tp} lacks {missing}, which were committed")

    def check_position(self, name: str, position: int) -> None:
        """A group's stable position, -1 for none, is that of the newest transaction that committed one."""
        of_name = [each for each in self.attempts if each.name == name and each.has_position]
        newest = max((each.serial for each in of_name if each.is_committed), default=-1)
        if position < newest:
            raise Wrong(f"the position of {name} is {position}, and transaction {newest} is committed")
        if position > newest:
            attempt = self.attempts[position]
            if attempt.fate is not Fate.SENT:
                raise Wrong(f"the position of {name} is {position}, and that transaction is {attempt.fate}")
            attempt.shown = True

    def _check_value(
        self, tp: TopicPartition, value: bytes, decided: dict[int, bool], *, is_shown: bool
    ) -> None:
        attempt = self.attempts[serial_of(value)]
        if decided.get(attempt.serial, False) and not is_shown:
            raise Wrong(f"transaction {attempt.serial} is shown in part: {tp} hides {value!r}")
        decided[attempt.serial] = is_shown
        if is_shown and attempt.fate in (Fate.OPEN, Fate.ABORTED):
            raise Wrong(f"{tp} shows {value!r}, and its transaction is {attempt.fate}")
        if not is_shown and attempt.is_committed:
            raise Wrong(f"{tp} hides {value!r}, and its transaction is {attempt.fate}, {attempt.shown=}")
        if is_shown:
            attempt.shown = True


def serial_of(value: bytes) -> int:
    """The transaction that a value belongs to."""
    return int(value.partition(b":")[0])
