"""The newest records of one topic, decoded once for all of its tails.

    log of partition 0 --feed--\\
    log of partition 1 --feed---+--> entries [first ... end) --> tails, each at an index of its own
    log of partition 2 --feed--/         ^ dropped when over ring_bytes_max or ring_records_max

- A turn takes a bounded number of records; whoever runs the rings (`tails`) decides when the next turn is.
- A partition that the ring cannot keep up with is left behind: a gap with its count takes the place of what
  nobody shows, and the ring goes on with the newest. Producers never wait for a tail.
- A tail that is slower than the ring finds its index gone, and how many records it missed.
- The order of the entries is the same for every tail, so that the id of an entry says for all partitions
  what was shown before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from tailrace.broker.feed import Feed
from tailrace.broker.topic import Topic
from tailrace.http.config import HttpConfig
from tailrace.http.live.entry import Entry, record_entry, write_shown
from tailrace.records import Record
from tailrace.runtime import Supervisor

TURN_RECORDS: Final = 256
"""Records that one turn takes."""

_TURN_BYTES = 1 << 20
_SHARE_RECORDS = 64  # of one partition, before the next one has its share
_BEHIND_RECORDS_MIN = 2 * TURN_RECORDS


class Reader(Protocol):
    """A tail, as its ring knows it."""

    def wake(self) -> None:
        """There is more, or there never will be."""


class Run:
    """Entries that follow each other. What a shell makes of them is kept for the next tail."""

    __slots__ = (
        "bytes",
        "end",
        "entries",
        "events",
        "first",
        "messages",
        "plain",
        "records",
        "size",
        "weight",
    )

    def __init__(
        self, entries: Sequence[Entry], *, first: int = 0, end: int = 0, plain: bool = False
    ) -> None:
        self.entries = entries
        self.first = first  # where it begins and ends in the ring
        self.end = end
        self.plain = plain  # of one partition, so that ids name no other
        self.size = sum([entry.size for entry in entries])
        self.weight = sum([entry.weight for entry in entries])
        self.records = sum([entry.json is not None for entry in entries])  # without those in gaps
        self.bytes = sum([entry.bytes for entry in entries])  # of those records
        self.events: bytes | None = None  # as SSE
        self.messages: list[str] | None = None  # as texts of a WebSocket


class Ring:
    """The live end of one topic."""

    def __init__(
        self,
        topic: Topic,
        *,
        config: HttpConfig,
        tasks: Supervisor,
        schedule: Callable[[Ring], None],
    ) -> None:
        self.topic = topic
        self.ended = ""  # why there will be no more
        self.is_broken = False  # by a mistake of ours
        self.first = 0  # index of the oldest entry
        self.passed = 0  # records up to the newest entry, those in gaps included
        self.dropped = 0  # of them, those before the oldest entry
        self.dropped_of: dict[int, int] = {}  # the same by partition
        self.kept_from: dict[int, int] = {}  # by partition: the offset from which on everything is here
        self.bytes = 0
        self.bytes_max = config.ring_bytes_max
        self._config = config
        self._tasks = tasks
        self._schedule = schedule
        self._entries: list[Entry] = []
        self._feeds: list[Feed] = []
        self._callbacks: list[Callable[[], None]] = []
        self._last: dict[int, int] = {}  # by partition: the offset before the next
        self._moved: dict[int, None] = {}  # partitions that have more, in the order of their shares
        self._run: Run | None = None  # the newest that was asked for
        self._waiting: set[Reader] = set()
        for partition in topic.partitions:  # all of them, or none
            partition.check_led()
        for index, partition in enumerate(topic.partitions):
            self._watch(index, partition.last_stable_offset)

    def __repr__(self) -> str:
        return f"<Ring of {self.topic.name}, {len(self)} entries, {self.bytes} bytes>"

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def end(self) -> int:
        """The index that the next entry gets."""
        return self.first + len(self._entries)

    def position(self, partition: int) -> int:
        """The offset of a partition that comes next."""
        return self._last.get(partition, -1) + 1

    # ---- for tails

    def wait(self, reader: Reader) -> None:
        """Wake a tail once, when there is more."""
        self._waiting.add(reader)

    def forget(self, reader: Reader) -> None:
        self._waiting.discard(reader)

    def run_from(self, index: int, *, bytes_max: int, records_max: int) -> Run:
        """The entries from an index that is here on, at least one; what another tail had will do."""
        run = self._run
        if run is None or run.first != index or len(run.entries) > records_max:
            entries = self.entries_from(index, records_max)
            size = 0
            for count, entry in enumerate(entries, 1):
                size += entry.size
                if size >= bytes_max:
                    entries = entries[:count]
                    break
            run = self._run = Run(entries, first=index, end=index + len(entries))
        return run

    def entries_from(self, index: int, count: int) -> list[Entry]:
        """At most so many entries from an index that is here on."""
        at = index - self.first
        assert at >= 0, "the tail looks before it leaps"
        return self._entries[at : at + count]

    # ---- for whoever runs it

    def turn(self) -> bool:
        """Take what is new, as far as one turn goes; whether there is more."""
        taken = taken_bytes = 0
        before = self.end
        while self._moved and taken < TURN_RECORDS and taken_bytes < _TURN_BYTES:
            index = next(iter(self._moved))
            del self._moved[index]
            count, size = self._take_share(index)
            taken += count
            taken_bytes += size
        if self.end > before:
            self._trim()
            self._wake_all()
        return bool(self._moved)

    def limit(self, bytes_max: int) -> None:
        """So much it may hold from now on."""
        if bytes_max != self.bytes_max:
            self.bytes_max = bytes_max
            self._trim()

    def grow(self) -> None:
        """The topic may have more partitions than before: everything in those is new."""
        if self.is_broken:
            return
        for partition in self.topic.partitions[len(self._feeds) :]:
            self._watch(partition.index, 0)
            self._move(partition.index)

    def finish(self, reason: str) -> None:
        """The topic is gone: tails show what is here, and end."""
        self.ended = reason
        self._wake_all()

    def fail(self, reason: str) -> None:
        """A mistake of ours was met: nothing more is taken, or every commit would meet it again."""
        self.is_broken = True
        self._unwatch()
        self.finish(reason)

    def close(self) -> None:
        """Nobody reads it any more."""
        self._unwatch()
        self._entries.clear()

    # ---- inside

    def _unwatch(self) -> None:
        for partition, callback, feed in zip(
            self.topic.partitions, self._callbacks, self._feeds, strict=False
        ):
            partition.waiters.discard(callback)
            feed.close()
        self._callbacks.clear()
        self._moved.clear()

    def _watch(self, index: int, position: int) -> None:
        """Follow a partition from an offset on."""
        partition = self.topic.partitions[index]
        callback = partial(self._move, index)
        self._callbacks.append(callback)
        self._feeds.append(Feed(partition, position, tasks=self._tasks, wake=callback))
        self._last[index] = position - 1
        self.kept_from[index] = position
        self.dropped_of[index] = 0
        partition.waiters.add(callback)

    def _move(self, index: int) -> None:
        """A partition has more, perhaps. Called with every commit, so that it does next to nothing."""
        if index not in self._moved and self._callbacks:
            self._moved[index] = None
            self._schedule(self)

    def _take_share(self, index: int) -> tuple[int, int]:
        """Records of one partition, and their bytes; it comes again if it has more."""
        feed = self._feeds[index]
        self._leap(index, feed)
        count = size = 0
        while count < _SHARE_RECORDS and size < _TURN_BYTES:
            record = feed.take_nowait()
            if feed.skips:
                skipped = sum([skip.count for skip in feed.take_skips()])
                before = feed.position if record is None else record.offset
                self._put(Entry(index, before - skipped, before))
            if record is None:
                self._last[index] = feed.position - 1
                return count, size
            size += self._put_record(index, record)
            count += 1
        self._moved[index] = None
        return count, size

    def _leap(self, index: int, feed: Feed) -> None:
        """Go on with the newest where too much is waiting."""
        partition = self.topic.partitions[index]
        if not partition.is_held_here:
            return  # it is not served here any more, and the feed finds out
        newest = partition.last_stable_offset
        behind_max = max(self._config.ring_records_max // len(self._feeds), _BEHIND_RECORDS_MIN)
        if newest - feed.position > behind_max:
            begin, end = feed.position, newest - TURN_RECORDS
            feed.move_to(end)
            self._put(Entry(index, begin, end))

    def _put_record(self, index: int, record: Record) -> int:
        self._last[index] = record.offset
        shown = write_shown(index, record.offset, self._last)
        entry = record_entry(self.topic.name, index, record, shown=shown)
        self._put(entry)
        return entry.size

    def _put(self, entry: Entry) -> None:
        self._last[entry.partition] = entry.end - 1
        if entry.json is None:
            self.kept_from[entry.partition] = entry.end
        self._entries.append(entry)
        self.bytes += entry.size
        self.passed += entry.weight

    def _trim(self) -> None:
        """Drop the oldest until it is within its bounds; the newest stays, whatever its size."""
        config, entries = self._config, self._entries
        excess = max(len(entries) - config.ring_records_max, 0)
        size = self.bytes - sum([entry.size for entry in entries[:excess]])
        while size > self.bytes_max and excess < len(entries) - 1:
            size -= entries[excess].size
            excess += 1
        if not excess:
            return
        for entry in entries[:excess]:
            self.dropped += entry.weight
            self.dropped_of[entry.partition] += entry.weight
            self.kept_from[entry.partition] = max(self.kept_from[entry.partition], entry.end)
        del entries[:excess]
        self.first += excess
        self.bytes = size

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for reader in waiting:
            reader.wake()
