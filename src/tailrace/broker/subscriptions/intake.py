"""Which partition the next new message comes from: each in turn, or always the one with the oldest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.broker.subscriptions.definition import Order
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.records import Record

New = tuple[SubscribedPartition, Record]


class Intake:
    """The new messages of all partitions of one subscription."""

    __slots__ = ("_by_time", "_heads", "_partitions", "_turn")

    def __init__(self, partitions: Sequence[SubscribedPartition], *, order: Order) -> None:
        self._partitions = partitions  # the subscription's own list, which may grow
        self._by_time = order is Order.TIMESTAMP
        self._heads: dict[int, Record] = {}  # the next record of each partition, where times are compared
        self._turn = 0

    def take(self, count: int, now_ms: int) -> Iterator[New]:
        """Up to so many; whoever stops early leaves the rest where it is."""
        if self._by_time and len(self._partitions) > 1:
            return self._take_oldest(count, now_ms)
        return self._take_in_turn(count, now_ms)

    def forget(self, partition: SubscribedPartition) -> None:
        """A partition begins elsewhere."""
        self._heads.pop(partition.place, None)

    def forget_all(self) -> list[New]:
        """Forget every record that was taken from a feed and not given; those records."""
        forgotten = [(self._partitions[place], record) for place, record in self._heads.items()]
        self._heads.clear()
        return forgotten

    def _take_in_turn(self, count: int, now_ms: int) -> Iterator[New]:
        total = len(self._partitions)
        share = max(count // max(total, 1), 1)
        dry = 0  # partitions in a row that had less than their share
        while count > 0 and dry < total:
            self._turn = (self._turn + 1) % total
            partition = self._partitions[self._turn]
            dry += 1
            wanted = left = min(share, count)
            while left and (record := partition.take_new(now_ms)) is not None:
                left -= 1
                yield partition, record
            count -= wanted - left
            if not left and wanted == share:
                dry = 0

    def _take_oldest(self, count: int, now_ms: int) -> Iterator[New]:
        """Of the next records of all partitions the one with the smallest timestamp, again and again."""
        heads = self._heads
        for _ in range(count):
            for place, partition in enumerate(self._partitions):
                if place in heads:
                    continue
                record = partition.take_new(now_ms)
                if record is not None:
                    heads[place] = record
                elif partition.feed.is_loading:
                    return  # its next one may be the oldest of all
            if not heads:
                return
            place = min(heads, key=lambda place: (heads[place].timestamp, place))
            yield self._partitions[place], heads.pop(place)
