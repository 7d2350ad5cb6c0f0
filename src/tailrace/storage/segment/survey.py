"""What a data directory holds that lost both checkpoints, found in its journal and its files. Only reads.

The lost checkpoint had passed every round that is not in the journal any more, and no other round is needed:
so the longest run of rounds that the journal holds reaches down to the checkpoint or below it. Every
partition is planned from its first entry in that run; what lies before that place is in the files, and
synced. A partition without entries is what its files hold, up to the segment that follows the newest complete
one: later ones were begun by writes that were never acknowledged.

A segment may have been completed, and then compacted, since its entries were written: its batches do not lie
where the entries say any more. So entries for a complete segment are left out. A segment is complete if its
sealed index holds, which is written after the segment is synced; if a snapshot follows it, which is written
later still; or if its batches have moved. Where the run truncates a partition that tells nothing above the
lowest offset that is cut at, unless the batches are of one history alone (`lineage`): then that one was
reached, and only what came after the segment is replayed. What is left is replayed, and a partition is
refused if its files do not agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

from tailrace.model import Offset, PartitionId
from tailrace.runtime import Disk, File
from tailrace.storage.api import LogConfig
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.chain import Chain, holds_later_batch, walk_chain
from tailrace.storage.segment.checkpoint import Checkpoint, Row, read_checkpoint, write_checkpoint
from tailrace.storage.segment.entry import LOOSE, Append, Entry, Trim, Truncate
from tailrace.storage.segment.index import SpanIndex, read_following, read_index
from tailrace.storage.segment.journal_run import CHECKPOINT_TOO, find_run, sort_entries
from tailrace.storage.segment.lineage import (
    Comparison,
    Disagreement,
    History,
    lowest_cut,
    read_histories,
    without_passed,
)
from tailrace.storage.segment.names import (
    DELETED,
    JOURNAL_DIRECTORY,
    STRAY,
    SURVEY,
    TEMPORARY,
    journal_file,
    numbered,
    partition_directory,
    read_journal_file,
    read_numbered,
    read_partition_directory,
)
from tailrace.storage.segment.plan import JournalContent, Plan, damage
from tailrace.storage.segment.shape import OFFSET_MAX, Shape
from tailrace.storage.segment.snapshot import read_snapshot

_LIVES_LEFT_OUT = 1 << 20  # lives that were used and of which nothing is left to see
_PIECE_BYTES = 1 << 20
_TAIL_BYTES_MAX = 64 << 20  # bytes behind the last batch that are searched for another one

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes behind the last whole batch of a partition's newest segment."""

    path: str
    base: int
    position: int
    data: bytes


@dataclass(slots=True)
class Survey:
    """Everything that a rebuild writes, decided."""

    checkpoint: Checkpoint  # as of the LSN before the run, without rows: the plans stand for them
    content: JournalContent
    plans: list[Plan]
    deleted: set[str]
    tails: list[TornTail] = field(default_factory=list)
    segments: list[tuple[str, int]] = field(default_factory=list)  # that are no part of their partition
    set_aside: list[str] = field(default_factory=list)  # older lives of partitions
    stale: list[str] = field(default_factory=list)  # index files without their suffix, to be made again

    @property
    def greatest_life(self) -> int:
        return self.checkpoint.next_life - 1


@dataclass(slots=True)
class _Life:
    """What is known of one life of one partition."""

    life: int
    partition_id: PartitionId
    created: bool
    entries: list[Entry]
    bases: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    @property
    def path(self) -> str:
        return partition_directory(self.partition_id, self.life)

    def segment(self, base: int) -> str:
        return f"{self.path}/{numbered(base, 'log')}"


class Surveyor:
    """Looks at one directory."""

    def __init__(self, disk: Disk, advance: Advance) -> None:
        self._disk = disk
        self._advance = advance
        self._tails: list[TornTail] = []
        self._segments: list[tuple[str, int]] = []
        self._stale: list[str] = []
        self._starts: dict[int, Offset] = {}

    async def survey(self) -> Survey:
        """Read the journal and the files; StorageError if they do not tell what was acknowledged."""
        numbers, floor, rounds, last_lsn = find_run(await self._read_journal())
        created, deleted, entries = sort_entries(rounds)
        self._starts = await load_starts(self._disk, last_lsn)
        names = [name.rstrip("/") for name in await self._disk.list("") if name.endswith("/")]
        present = {life: pid for pid, life in filter(None, map(read_partition_directory, names))}
        for life in entries.keys() - present.keys() - created.keys() - deleted:
            raise damage(
                "journal", f"it speaks of life {life}, whose directory is missing", hint=CHECKPOINT_TOO
            )
        lives = sorted((present | created).items())
        newest = {pid: life for life, pid in lives if life not in deleted}
        plans = []
        for pid, life in newest.items():
            plans.append(await self._plan(_Life(life, pid, life in created, entries.get(life, []))))
        older = {life: pid for life, pid in present.items() if life not in deleted and newest[pid] != life}
        return Survey(
            checkpoint=Checkpoint(
                lsn=floor,
                next_life=max([*_lives(names), *entries, *created], default=0) + 1 + _LIVES_LEFT_OUT,
                journal_files=numbers,
                rows=(),
            ),
            content=JournalContent(rounds, last_lsn),
            plans=plans,
            deleted={partition_directory(present[life], life) for life in deleted & present.keys()},
            tails=self._tails,
            segments=self._segments,
            stale=self._stale,
            set_aside=[partition_directory(pid, life) for life, pid in older.items()],
        )

    async def _read_journal(self) -> dict[int, memoryview]:
        files: dict[int, memoryview] = {}
        for name in await self._disk.list(JOURNAL_DIRECTORY):
            number = read_journal_file(name)
            if number is not None:
                data = await read_file(self._disk, journal_file(number), fresh=True) or b""
                self._advance(len(data))
                files[number] = memoryview(data)
        return files

    # ---- one partition

    async def _plan(self, known: _Life) -> Plan:
        await self._list(known)
        start = self._starts.get(known.life)
        if start is None:
            start = Offset(0) if known.created else await self._start(known)
        known.entries = without_passed(known.entries)
        unknown = await self._forget_unknown(known)
        entries = await self._without_lost(known, await self._without_complete(known))
        first = next((entry for entry in entries if not isinstance(entry, Trim)), None)
        if first is None:
            self._segments += [(known.path, base) for base in unknown]
            plan = await self._plan_files(known, start)
        else:
            plan = _plan_before(known, start, first)
        for entry in entries:
            _replay(plan, entry)
        plan.shape.end = max(plan.shape.end, plan.shape.start)  # a trim removed the files that told the end
        plan.shape.prune()
        if first is not None:
            await self._check_solid(plan)
            await self._check_replayed(known, plan, entries)
        return plan

    async def _without_complete(self, known: _Life) -> list[Entry]:
        """The entries without those for complete segments, and without truncations that came before them."""
        histories = read_histories(known.entries)
        for history in reversed(histories) if len(histories) > 1 else ():
            complete = await self._proved_segment(known, history)
            if complete < 0:
                complete = history.compacted_segment()
            if complete >= 0:
                await self._find_stale(known, history, complete)
                return history.entries_behind(complete)
        complete = await self._complete_segment(known, histories[-1])
        return histories[0].entries_behind(complete)

    async def _forget_unknown(self, known: _Life) -> list[int]:
        """Leave out segments and snapshots that do not follow on the last append of the run; the segments.

        A recovery that lost loose batches was removing them when it was killed.
        """
        appends = [entry for entry in known.entries if isinstance(entry, Append)]
        if not appends or lowest_cut(known.entries) != OFFSET_MAX:
            return []
        end = appends[-1].batch.next_offset
        unknown = [base for base in known.bases if base > end]
        last = max((base for base in known.bases if base <= end), default=None)
        if not unknown or last is None or await self._leads_to(known, last, unknown[0]):
            return []
        known.bases = [base for base in known.bases if base <= end]
        known.snapshots = [offset for offset in known.snapshots if offset <= end]
        return unknown

    async def _find_stale(self, known: _Life, history: History, complete: int) -> None:
        """Note index files of what truncations cut off: recovery replaces none beside complete segments."""
        cuts = [entry.segment for entry in history.entries[: history.begin] if isinstance(entry, Truncate)]
        for base in known.bases:
            if (
                min(cuts, default=OFFSET_MAX) <= base <= complete
                and await self.sealed_index(known.path, base, whole=True) is None
            ):
                self._stale.append(f"{known.path}/{numbered(base, '')}")

    async def _without_lost(self, known: _Life, entries: list[Entry]) -> list[Entry]:
        """The entries without those at their beginning that do not follow on what the files hold.

        A recovery ended the log before them, because loose batches before them were lost.
        """
        first = next((entry for entry in entries if not isinstance(entry, Trim)), None)
        loose = [entry for entry in known.entries if isinstance(entry, Append) and entry.flags & LOOSE]
        if not isinstance(first, Append | Truncate) or not loose:
            return entries
        if any(isinstance(entry, Trim) and entry.offset >= first.segment for entry in entries):
            return entries  # the segments before are gone by the trim, in whichever order a crash left that
        place = first.segment, first.position
        before = max((base for base in known.bases if (base, 0) < place), default=None)
        if before is None or (not first.position and await self._leads_to(known, before, first.segment)):
            return entries
        file = await self._open(known.segment(before))
        size = file.size()
        chain = await walk_chain(file, base=before, length=size, advance=_ignore)
        file.close()
        if before == first.segment and chain.end < size:
            return entries  # damaged
        lost = list(takewhile(lambda entry: _was_lost(entry, chain.next_offset), entries))
        return [entry for entry in lost if isinstance(entry, Trim)] + entries[len(lost) :]

    async def _list(self, known: _Life) -> None:
        try:
            names = await self._disk.list(known.path)
        except FileNotFoundError:
            return  # its creation was not applied
        known.bases = [base for name in names if (base := read_numbered(name, "log")) is not None]
        known.snapshots = [at for name in names if (at := read_numbered(name, "snapshot")) is not None]

    async def _start(self, known: _Life) -> Offset:
        """The start of the log: its epochs begin there, and a checkpoint wrote them after every trim.

        The newest snapshot may be older than the last trim, if a truncation removed newer ones: then the
        segments that are left tell more. A log without epochs was empty, and began where it ended.
        """
        first = Offset(min(known.bases, default=0))
        if not known.snapshots:
            return first
        path = f"{known.path}/{numbered(max(known.snapshots), 'snapshot')}"
        found = read_snapshot(await read_file(self._disk, path, fresh=True) or b"")
        if found is None:
            return first
        begins = next(iter(found.epochs), None)
        return max(first, Offset(max(known.snapshots) if begins is None else begins[1]))

    async def _plan_files(self, known: _Life, start: Offset) -> Plan:
        """A partition of which the run says nothing but trims: it ends where its newest segment does."""
        if not known.bases:
            if not known.created:
                raise damage(known.path, "no segment is left", hint=CHECKPOINT_TOO)
            return _plan_at(known, start, place=(0, 0), offset=0)
        base = await self._newest_segment(known)
        self._segments += [(known.path, later) for later in known.bases if later > base]
        if base not in known.bases:  # the one before is complete, and this one was lost while it was empty
            return _plan_at(known, start, place=(base, 0), offset=base)
        file = await self._open(known.segment(base))
        size = file.size()
        chain = await walk_chain(file, base=base, length=size, advance=self._advance)
        end = max(chain.next_offset, *known.snapshots) if known.snapshots else chain.next_offset
        plan = _plan_at(known, start, place=(base, chain.end), offset=end)
        if chain.end < size:
            await self._judge_tail(plan, file, chain, size)
        file.close()
        return plan

    async def _newest_segment(self, known: _Life) -> int:
        """The segment that the lost checkpoint called the newest one, or one that goes on from it."""
        reached = max(known.snapshots, default=0)  # the log held everything below
        base = max((each for each in known.bases if each < reached), default=known.bases[0])
        for complete in reversed(known.bases):
            index = await self.sealed_index(known.path, complete)
            if index is not None and index.following is not None:
                base = max(base, index.following)
                break
        while (later := next((each for each in known.bases if each > base), None)) is not None:
            if not await self._leads_to(known, base, later):
                break
            base = later
        return base

    async def _leads_to(self, known: _Life, base: int, later: int) -> bool:
        """Whether a segment whose index is no help ends where the next one begins."""
        if base not in known.bases:
            return False
        places = await read_file(self._disk, f"{known.path}/{numbered(base, 'index')}", fresh=True)
        if places is not None and read_following(places) == later:
            return True
        file = await self._open(known.segment(base))
        size = file.size()
        chain = await walk_chain(file, base=base, length=size, advance=self._advance)
        file.close()
        return chain.end == size and chain.next_offset == later

    async def _judge_tail(self, plan: Plan, file: File, chain: Chain, size: int) -> None:
        """Cut a write that a crash tore; where the log is known to go on, acknowledged bytes are damaged."""
        data = bytearray(min(size - chain.end, _TAIL_BYTES_MAX + 1))
        await file.read(chain.end, memoryview(data))
        goes_on = plan.shape.end > chain.next_offset or len(data) > _TAIL_BYTES_MAX
        if goes_on or holds_later_batch(memoryview(data), chain.next_offset):
            plan.damaged = chain.next_offset
        else:
            self._tails.append(TornTail(plan.path, plan.solid[0], chain.end, bytes(data)))

    async def _check_solid(self, plan: Plan) -> None:
        """Refuse a partition whose files do not hold what comes before the first entry that is replayed."""
        base, position = plan.solid
        if not position or base not in plan.shape.segments:
            return
        path = f"{plan.path}/{numbered(base, 'log')}"
        file = await self._open(path)
        length = min(file.size(), position)
        chain = await walk_chain(file, base=base, length=length, advance=self._advance)
        file.close()
        if chain.end != position or chain.next_offset > plan.solid_offset:
            raise damage(
                path,
                f"its first {position} bytes and the journal disagree: damaged, or compacted since",
                hint=CHECKPOINT_TOO,
            )

    async def _complete_segment(self, known: _Life, history: History) -> int:
        """The newest complete segment below every truncation, if entries for it or older ones are there.

        Else -1.
        """
        floor = lowest_cut(known.entries)
        reached = max(known.snapshots, default=0) if floor == OFFSET_MAX else 0  # the log is synced up to it
        for base, following in _touched(known):
            sealed = await self.sealed_index(known.path, base)
            if sealed is not None:
                following = sealed.following or following
            elif following > reached and not (await self._compare(known, base, history))[0].moved:
                continue
            if following <= floor:
                return base
        return -1

    async def _proved_segment(self, known: _Life, history: History) -> int:
        """The newest segment that is complete and holds what only this history has, or -1.

        A sealed index is written, and a segment compacted, after everything that it holds is synced. So the
        truncation before the history had been carried out, and the files hold the history to the end of it.
        """
        for base, _ in _touched(known):
            compared, is_whole = await self._compare(known, base, history)
            if not compared.is_own or compared.is_foreign or not is_whole:
                continue
            if compared.moved or await self.sealed_index(known.path, base, whole=True) is not None:
                return base
        return -1

    async def _compare(self, known: _Life, base: int, history: History) -> tuple[Comparison, bool]:
        """A segment file compared with a history, and whether the file holds nothing but batches."""
        compared = Comparison(base, history)
        file = await self._open(known.segment(base))
        size = file.size()
        chain = await walk_chain(file, base=base, length=size, advance=_ignore, see=compared.see)
        file.close()
        is_whole = chain.end == size
        compared.moved |= is_whole and compared.lacks_synced()
        return compared, is_whole

    async def _check_replayed(self, known: _Life, plan: Plan, replayed: Sequence[Entry]) -> None:
        """Refuse a partition where entries would be written over a segment that was compacted since."""
        for base in {append.segment for append in plan.surviving()} & set(known.bases):
            found = Disagreement(base, known.entries, replayed)
            file = await self._open(known.segment(base))
            await walk_chain(file, base=base, length=file.size(), advance=_ignore, see=found.see)
            file.close()
            if found.found:
                raise damage(
                    known.segment(base),
                    "it and the journal disagree: damaged, or compacted since",
                    hint=CHECKPOINT_TOO,
                )

    async def sealed_index(self, path: str, base: int, *, whole: bool = False) -> SpanIndex | None:
        """The sealed index beside a segment, if it is of what the segment holds now.

        That is tried with the last span, or with all of them.
        """
        stem = f"{path}/{numbered(base, '')}"
        places = await read_file(self._disk, stem + "index", fresh=True)
        times = await read_file(self._disk, stem + "timeindex", fresh=True)
        if places is None or times is None:
            return None
        interval_bytes = LogConfig().index_interval_bytes
        index = read_index(places, times, base=base, interval_bytes=interval_bytes, state=None)
        if index is None:
            return None
        file = await self._open(f"{path}/{numbered(base, 'log')}")
        first = 0 if whole else max(len(index) - 1, 0)
        is_of_it = index.end <= file.size()
        while is_of_it and first < len(index):
            last = max(bisect_right(index.positions, index.positions[first] + _PIECE_BYTES) - 1, first + 1)
            data = memoryview(bytearray(index.positions[last] - index.positions[first]))
            done = await file.read(index.positions[first], data)
            is_of_it = done == len(data) and index.check(first, last, data) is None
            first = last
        file.close()
        return index if is_of_it else None

    async def _open(self, path: str) -> File:
        try:
            return await self._disk.open(path, fresh=True)
        except FileNotFoundError:
            raise damage(path, "the segment is missing", hint=CHECKPOINT_TOO) from None


async def load_starts(disk: Disk, last_lsn: int) -> dict[int, Offset]:
    """What a rebuild that was interrupted had found, of the same journal."""
    data = await read_file(disk, SURVEY, fresh=True)
    found = read_checkpoint(memoryview(data)) if data is not None else None
    return {row.life: row.start for row in found.rows} if found is not None and found.lsn == last_lsn else {}


async def save_starts(disk: Disk, survey: Survey) -> None:
    """Keep where the logs begin: recovery removes snapshots that told it, if it cannot use them."""
    rows = [
        Row(
            life=plan.life,
            partition_id=plan.partition_id,
            start=plan.shape.start,
            end=plan.shape.end,
            segment=plan.shape.last()[0],
            length=plan.shape.last()[1],
        )
        for plan in survey.plans
    ]
    kept = replace(survey.checkpoint, lsn=survey.content.last_lsn, rows=tuple(rows))
    file = await disk.create(SURVEY + TEMPORARY)
    await file.write(0, [write_checkpoint(kept)], sync=True)
    file.close()
    await disk.rename(SURVEY + TEMPORARY, SURVEY)
    await disk.sync_directory("")


def _ignore(_: int) -> None:
    """Bytes that were not announced."""


def _plan_at(known: _Life, start: Offset, *, place: tuple[int, int], offset: int) -> Plan:
    shape = Shape(start, Offset(offset), {place[0]: place[1]})
    return Plan(known.life, known.partition_id, None, shape, place, offset)


def _plan_before(known: _Life, start: Offset, first: Entry) -> Plan:
    """A partition that is replayed from `first` on."""
    assert isinstance(first, Append | Truncate)
    offset = first.batch.base_offset if isinstance(first, Append) else first.offset
    return _plan_at(known, start, place=(first.segment, first.position), offset=offset)


def _was_lost(entry: Entry, end: int) -> bool:
    """Whether a recovery that ended the log at `end` undid an entry, or may have left it without effect."""
    if isinstance(entry, Append):
        return bool(entry.flags & LOOSE) and entry.batch.base_offset > end
    return not isinstance(entry, Truncate) or entry.offset > end


def _touched(known: _Life) -> list[tuple[int, int]]:
    """The segments from the oldest one that entries are for, newest first, each with the one behind it."""
    first = min((entry.segment for entry in known.entries if isinstance(entry, Append)), default=OFFSET_MAX)
    return [pair for pair in reversed(list(pairwise(known.bases))) if pair[0] >= first]


def _replay(plan: Plan, entry: Entry) -> None:
    if isinstance(entry, Trim) and entry.segment <= plan.shape.last()[0]:
        entry = Trim(entry.life, entry.offset)  # it rolled to a segment that the files have passed
    plan.add(entry)


def _lives(names: Sequence[str]) -> list[int]:
    """The lives of all partition directories, also of those being removed or put aside."""
    bare = (name.removeprefix(DELETED).removeprefix(STRAY) for name in names)
    return [found[1] for found in map(read_partition_directory, bare) if found is not None]
