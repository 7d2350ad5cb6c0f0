"""What producers were promised and what is there: the checker of the kill tests.

Each value is sent once, as "<producer> <number>" to one partition, so a value names its send.

    I1  every acknowledged record is at the offset that its producer was told
    I2  one value per partition and offset, for every reader
    I3  no value is there twice
    I5  the values of one producer are in the order of their sending
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class History:
    """Acknowledged sends, and every read."""

    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    read: dict[tuple[int, int], bytes] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def acknowledge(self, *, partition: int, offset: int, value: bytes) -> None:
        """A producer was told that its record is there."""
        self._put(self.acknowledged, partition, offset, value, "acknowledged twice")

    def see(self, *, partition: int, offset: int, value: bytes) -> None:
        """A reader was given a record; the same one may come again, another one at its offset may not."""
        self._put(self.read, partition, offset, value, "read differently")

    def check(self, final: Mapping[int, Iterable[tuple[int, bytes]]]) -> None:
        """Against everything that a last reader finds, by partition, in order."""
        there = {(index, offset): value for index, rows in final.items() for offset, value in rows}
        for told, what in ((self.acknowledged, "acknowledged"), (self.read, "read")):
            wrong = [(at, value, there.get(at)) for at, value in told.items() if there.get(at) != value]
            if wrong:
                self.trouble.append(f"{len(wrong)} {what} records are lost or changed, first {wrong[0]}")
        twice = [value for value, count in Counter(there.values()).items() if count > 1]
        if twice:
            self.trouble.append(f"{len(twice)} records are there twice, first {twice[0]!r}")
        for index, rows in final.items():
            self._check_order(index, rows)
        assert not self.trouble, "\n".join(self.trouble)

    def _check_order(self, partition: int, rows: Iterable[tuple[int, bytes]]) -> None:
        last: dict[bytes, int] = {}
        for offset, value in rows:
            producer, number = value.split()
            if int(number) <= last.get(producer, -1):
                self.trouble.append(f"partition {partition} offset {offset}: {value!r} is out of order")
            last[producer] = int(number)

    def _put(
        self, rows: dict[tuple[int, int], bytes], partition: int, offset: int, value: bytes, what: str
    ) -> None:
        earlier = rows.setdefault((partition, offset), value)
        if earlier != value:
            self.trouble.append(f"{what}: partition {partition} offset {offset}: {earlier!r}, then {value!r}")
