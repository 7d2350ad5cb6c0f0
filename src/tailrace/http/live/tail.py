"""One client that watches a topic: through the log first if it wants to, then in the topic's ring.

    history --> catching up --> live
      reads       in the ring,    in the ring: an index, and nothing else
      the log     past what it
                  has shown

- A tail holds no records of its own but for the portion that its shell is sending: a client that does not
  read costs that, and nothing more.
- Live, one that falls out of the ring goes on with the oldest that is there, and says how many it missed. One
  that is still catching up goes back to the log then, and where it meets a gap: what it wants is there.
- The right to read the topic is asked for again before anything is shown if a topic or a right has changed,
  and every few seconds.
- After every portion a tail rests, the longer the more tails there are: all of them together take a share of
  the loop's time, and producers have the rest.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.broker.gate import Access
from tailrace.broker.publishing import topic_mark
from tailrace.http.live.entry import Entry, Filter, write_shown
from tailrace.http.live.history import History
from tailrace.http.live.ring import Ring, Run
from tailrace.model import BrokerError, ErrorCode, StorageError, TailraceError
from tailrace.model.operation import Operation as AclOperation

if TYPE_CHECKING:
    from tailrace.http.live.tails import Tails

_SCAN_RECORDS_MAX = 2_000  # that one portion is looked for in
_REST_S_MIN = 0.001
_ASK_AGAIN_S = 5.0  # how long the right to read is believed without a change of the gate's version

SCAN_S: Final = 0.5e-6
SEND_S: Final = 40e-6
BYTE_S: Final = 2e-9
"""About what it costs to look at a record, to send a message, and a byte of it."""


class TailEnded(TailraceError):
    """There is nothing more to come; the message is the reason, and empty if the client left."""


class TailRefused(TailEnded):
    """The session may not read the topic any more."""


class TailFailed(TailEnded):
    """It is our fault."""


class Portion(NamedTuple):
    """What a client is told next."""

    skipped: int  # records that it missed before
    run: Run
    scanned: int  # records that were looked at


class Tail:
    """A position in a topic that moves on as its client reads."""

    def __init__(
        self,
        tails: Tails,
        ring: Ring,
        access: Access,
        *,
        filter: Filter,
        positions: dict[int, int] | None,
        bytes_max: int,
    ) -> None:
        """`positions` by partition say where it begins; None: with the newest."""
        self.access = access  # gave out the topic for reading; it says whose tail this is
        self._loop = asyncio.get_running_loop()
        self._asked_version = access.version  # of the gate, when the right to read was last asked for
        self._asked_until = self._loop.time() + _ASK_AGAIN_S
        self._tails = tails
        self._ring = ring
        self._filter = filter
        self._wants_all = positions is not None  # until it is live
        self._bytes_max = bytes_max  # of one portion
        self._is_paused = False
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._reason: str | None = None  # why it must end, whatever there is still to show
        self._skipped = 0  # that its client was not told yet
        self._index = 0
        self._passed = 0  # records before the index, of its partition or of all
        self._history: History | None = None
        self._floors: dict[int, int] | None = None  # catching up: by partition, the offset that comes next
        self._floors_end: int | None = None  # the index at which it has caught up
        if positions is None:
            self._begin_live()
        else:
            self._read_log(positions)

    def __repr__(self) -> str:
        return f"<Tail of {self._ring.topic.name} at {self._history or self._index}>"

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def mark(self) -> str:
        """Which topic it shows, whatever others have its name."""
        return topic_mark(self._ring.topic.id)

    # ---- for the shell

    async def wait_portion(self, timeout_s: float, *, records_max: int = _SCAN_RECORDS_MAX) -> Portion | None:
        """What comes next; None if nothing did for a while. TailEnded once nothing will."""
        self._check_stopped()
        self._check_right()
        if self._history is not None and not self._is_paused:
            found = await self._next_of_log(self._history)
            self._check_stopped()
            if found is not None or self._history is not None:
                return found
        self._changed.clear()
        found = self._take_nowait(records_max)
        if found is None and (self._history is None or self._is_paused):
            await self._wait_changed(min(timeout_s, _ASK_AGAIN_S))
            self._check_right()
            if self._history is None:  # else its pause is over, and it goes on in the log
                found = self._take_nowait(records_max)
        return found

    async def rest(self, portion: Portion, *, messages: int) -> None:
        """After a portion was sent: let the others have their turn, for long if it was much or there are many
        tails."""
        self._count(portion.run)
        size = portion.run.size if portion.run.entries else 0
        cost_s = portion.scanned * SCAN_S + messages * SEND_S + size * BYTE_S
        seconds = self._tails.rest_s(cost_s)
        if seconds < _REST_S_MIN:
            await asyncio.sleep(0)
            return
        await _wait_at_most(self._over, seconds)

    def pause(self, is_paused: bool) -> None:
        """Show nothing for a while. What passes live is counted, and not shown; the log does not pass."""
        if is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if not is_paused and self._is_live:
            self._pass_everything()
        self.wake()

    def stop(self, reason: str) -> None:
        """End it; its shell says why, and whoever does not take that is the listener's to cut off."""
        if self._reason is None:
            self._reason = reason
            self._over.set()
            self.wake()

    def close(self) -> None:
        """Its client is gone; twice is harmless."""
        self._ring.forget(self)
        self._tails.leave(self, self._ring)

    # ---- the ring's side

    def wake(self) -> None:
        self._changed.set()

    # ---- inside: live

    @property
    def _is_live(self) -> bool:
        return self._history is None and not (self._wants_all and self._floors is not None)

    def _begin_live(self) -> None:
        """From the newest on: what the ring has not taken yet is older than this tail."""
        ring, newest = self._ring, self._newest()
        self._index, self._passed = ring.end, self._ring_passed()
        self._floors = newest if any(at > ring.position(index) for index, at in newest.items()) else None
        self._floors_end = None

    def _take_nowait(self, records_max: int) -> Portion | None:
        if self._is_paused:
            return None
        if self._index < self._ring.first:
            self._fall_out()
            if self._history is not None:
                return None
        skipped, self._skipped = self._skipped, 0
        if self._index < self._ring.end:
            if self._filter.is_open and self._floors is None:
                return self._take_shared(skipped, records_max)
            return self._take_own(skipped, records_max)
        return Portion(skipped, Run(()), 0) if skipped else None

    def _take_shared(self, skipped: int, records_max: int) -> Portion:
        """What every tail at this index shows."""
        run = self._ring.run_from(self._index, bytes_max=self._bytes_max, records_max=records_max)
        self._index = run.end
        self._passed += run.weight
        return Portion(skipped, run, 0)

    def _take_own(self, skipped: int, records_max: int) -> Portion:
        """What this tail alone shows of the next entries."""
        shown: list[Entry] = []
        size = scanned = 0
        for entry in self._ring.entries_from(self._index, _SCAN_RECORDS_MAX):
            scanned += 1
            if not self._wants(entry.partition):
                self._index += 1
                continue
            if entry.json is None and self._floors is not None and self._goes_back(entry):
                self._read_log(self._floors)
                break
            self._index += 1
            self._passed += entry.weight
            own = entry if self._floors is None else self._not_shown_yet(entry)
            if own is not None and (own.json is None or self._filter.admits(entry)):
                shown.append(own)
                size += own.size
                if size >= self._bytes_max or len(shown) >= records_max:
                    break
        self._end_catching_up()
        return Portion(skipped, Run(shown, plain=self._filter.partition is not None), scanned)

    def _not_shown_yet(self, entry: Entry) -> Entry | None:
        """An entry, or the part of it, that is past what was shown before."""
        assert self._floors is not None
        index = entry.partition
        floor = self._floors.get(index, 0)
        if entry.end <= floor:
            return None
        self._floors[index] = entry.end
        if entry.json is None:
            return Entry(index, max(entry.offset, floor), entry.end)
        return entry.with_shown(self._shown(entry))

    def _goes_back(self, gap: Entry) -> bool:
        """Whether a gap is in the way of one that wants everything."""
        assert self._floors is not None
        return self._wants_all and gap.end > self._floors.get(gap.partition, 0)

    def _end_catching_up(self) -> None:
        """Once the ring has taken all that was shown before, the entries behind that are new to this tail."""
        floors, ring = self._floors, self._ring
        if floors is None:
            return
        if self._floors_end is None and all(ring.position(each) >= at for each, at in floors.items()):
            self._floors_end = ring.end
        if self._floors_end is not None and self._index >= self._floors_end:
            self._floors = self._floors_end = None
            self._wants_all = False

    def _fall_out(self) -> None:
        ring, floors = self._ring, self._floors
        if floors is not None and self._wants_all:
            self._read_log(floors)
            return
        dropped = ring.dropped if self._filter.partition is None else ring.dropped_of[self._filter.partition]
        if floors is None:
            self._skipped += dropped - self._passed
        else:
            wanted = [each for each in ring.kept_from if self._wants(each)]  # new partitions among them
            self._floors = {each: max(ring.kept_from[each], floors.get(each, 0)) for each in wanted}
            self._skipped += sum([at - floors.get(each, 0) for each, at in self._floors.items()])
        self._index, self._passed = ring.first, dropped

    def _pass_everything(self) -> None:
        """Go on with the newest, and count what lies before it, whether the ring has taken it or not."""
        newest = self._newest()
        if self._floors is None:
            self._skipped += self._ring_passed() - self._passed
            self._skipped += sum([at - self._ring.position(index) for index, at in newest.items()])
        else:
            self._skipped += sum([at - self._floors.get(index, 0) for index, at in newest.items()])
        self._begin_live()

    def _newest(self) -> dict[int, int]:
        """The end of each partition that is wanted."""
        ring = self._ring
        found: dict[int, int] = {}
        for partition in ring.topic.partitions:
            if self._wants(partition.index):
                is_served = partition.is_held_here  # or not any more
                found[partition.index] = (
                    partition.last_stable_offset if is_served else ring.position(partition.index)
                )
        return found

    def _ring_passed(self) -> int:
        """How many records the ring took, of the partition that is wanted or of all."""
        ring, wanted = self._ring, self._filter.partition
        if wanted is None:
            return ring.passed
        here = ring.entries_from(ring.first, len(ring))
        return ring.dropped_of[wanted] + sum([each.weight for each in here if each.partition == wanted])

    # ---- inside: the log

    def _read_log(self, positions: dict[int, int]) -> None:
        self._floors = self._floors_end = None
        self._history = History(self._ring.topic, positions, filter=self._filter, bytes_max=self._bytes_max)

    async def _next_of_log(self, history: History) -> Portion | None:
        """The next records of the log; None if there are none before those in the ring."""
        ring = self._ring
        if history.has_reached(ring.kept_from):
            self._join(history.positions)
            return None
        try:
            skipped, entries, scanned = await history.next_round(ring.kept_from)
        except (BrokerError, StorageError) as error:
            raise (self._ended() if ring.ended else TailFailed(str(error))) from error
        self._tell_shown(entries, history)
        return Portion(skipped, Run(entries, plain=self._filter.partition is not None), scanned)

    def _join(self, positions: dict[int, int]) -> None:
        """Go on in the ring, from its oldest entry, past what was shown."""
        ring, wanted = self._ring, self._filter.partition
        self._history = None
        self._index = ring.first
        self._passed = ring.dropped if wanted is None else ring.dropped_of[wanted]
        self._floors = positions
        self._end_catching_up()

    def _tell_shown(self, entries: list[Entry], history: History) -> None:
        """Say with each entry of the log what else was shown before it."""
        last = {index: at - 1 for index, at in history.positions.items()}
        for entry in reversed(entries):
            last[entry.partition] = entry.offset
            entry.shown = write_shown(entry.partition, entry.offset, last)
            last[entry.partition] = entry.offset - 1

    def _shown(self, entry: Entry) -> bytes:
        assert self._floors is not None
        last = {index: at - 1 for index, at in self._floors.items()}
        return write_shown(entry.partition, entry.offset, last)

    # ---- inside: sent

    def _count(self, sent: Run) -> None:
        traffic = self._ring.topic.counters
        traffic.records_out += sent.records
        traffic.bytes_out += sent.bytes

    # ---- inside: waiting and ending

    def _wants(self, partition: int) -> bool:
        return self._filter.partition is None or self._filter.partition == partition

    async def _wait_changed(self, timeout_s: float) -> None:
        if self._ring.is_broken or (self._ring.ended and not self._is_paused):
            raise self._ended()
        self._ring.wait(self)
        await _wait_at_most(self._changed, timeout_s)
        self._check_stopped()

    def _ended(self) -> TailEnded:
        return (TailFailed if self._ring.is_broken else TailEnded)(self._ring.ended)

    def _check_right(self) -> None:
        """End where the session may not read any more; ask when a right changed, and now and then."""
        version, now = self.access.version, self._loop.time()
        if version == self._asked_version and now < self._asked_until:
            return
        self._asked_version, self._asked_until = version, now + _ASK_AGAIN_S
        try:
            self.access.topic(self._ring.topic.name, AclOperation.READ)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return  # it was deleted: the ring shows what is left, and says so
            raise TailRefused(str(error)) from error

    def _check_stopped(self) -> None:
        if self._reason is not None:
            raise TailEnded(self._reason)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event or for a while, without a task: there are thousands that wait."""
    waiting = asyncio.timeout(seconds)
    try:
        async with waiting:
            await event.wait()
    except TimeoutError:
        if not waiting.expired():
            raise
