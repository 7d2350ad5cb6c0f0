"""Which file is what, by name and plan alone: in the data directory, and in the directory of a partition.

    sealed      segments before the newest one that the checkpoint knows: complete, never written again
    solid       that newest one: its bytes up to the checkpoint's length must be there
    journalled  segments that rounds above the checkpoint begin: the journal holds what they may lack
    unplanned   what recovery removes: left by a crash, by a trim, or by somebody else

Without a plan (CHECKPOINT is unreadable) all segments but the newest count as sealed, and nothing as
unplanned.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tailrace.storage.encryption.keys_file import KEYS, KEYS_COPY
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CHECKPOINT_COPY,
    CLOCK,
    CUT,
    DELETED,
    JOURNAL_DIRECTORY,
    LABEL,
    SEGMENT_SUFFIXES,
    STRAY,
    TEMPORARY,
    numbered,
    read_numbered,
    read_partition_directory,
)
from tailrace.storage.segment.plan import Plan
from tailrace.storage.segment.shape import wholly_below

_OWN = {CHECKPOINT, CHECKPOINT_COPY, CLOCK, JOURNAL_DIRECTORY + "/", "LOCK", KEYS, KEYS_COPY}

LeftoverKind = Literal["stray", "deleted", "unfinished", "foreign"]


def leftover_kind(name: str, *, known: Container[str], deleted: Container[str]) -> LeftoverKind | None:
    """What a name in the data directory is, if not a part of the log; directories end with a slash.

    `known` and `deleted` are the directories of the partitions that exist, and of those about to be removed.
    """
    bare = name.rstrip("/")
    if name in _OWN or bare in known:
        return None
    if bare in deleted or name.startswith(DELETED):
        return "deleted"
    if name.startswith(STRAY) or (name != bare and read_partition_directory(bare)):
        return "stray"
    return "unfinished" if name.endswith(TEMPORARY) or name.startswith(CUT) else "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of one partition. Segments and snapshots are named by their offsets."""

    sealed: tuple[int, ...]
    solid: int | None  # None: trimmed away since, or not known
    journalled: tuple[int, ...]
    snapshots: tuple[int, ...]
    unplanned: tuple[str, ...]
    present: frozenset[int]  # segments whose .log is there
    aborted: tuple[int, ...]  # segments whose list of aborted transactions is there

    @property
    def segments(self) -> list[int]:
        """Every segment of the log, ascending."""
        solid = () if self.solid is None else (self.solid,)
        return sorted({*self.sealed, *solid, *self.journalled})


def plan_layout(names: Sequence[str], plan: Plan | None) -> Layout:
    """Sort the names of a partition directory."""
    present = frozenset(_offsets(names, "log"))
    snapshots, aborted = _offsets(names, "snapshot"), _offsets(names, "aborted")
    if plan is None:
        *sealed, newest = sorted(present) or [0]
        return Layout(
            sealed=tuple(sealed),
            solid=None,
            journalled=(newest,) if present else (),
            snapshots=tuple(snapshots),
            unplanned=(),
            present=present,
            aborted=tuple(aborted),
        )
    solid = plan.solid[0]
    log = {base for base in present if base <= solid} | set(plan.shape.segments)
    log.difference_update(wholly_below(log, plan.shape.start))
    known = {numbered(base, suffix) for base in log for suffix in SEGMENT_SUFFIXES}
    known.add(LABEL)
    known |= {numbered(offset, "snapshot") for offset in snapshots if offset <= plan.solid_offset}
    return Layout(
        sealed=tuple(sorted(base for base in log if base < solid)),
        solid=solid if solid in log else None,
        journalled=tuple(sorted(base for base in log if base > solid)),
        snapshots=tuple(offset for offset in snapshots if offset <= plan.solid_offset),
        unplanned=tuple(name for name in names if name not in known),
        present=present,
        aborted=tuple(base for base in aborted if base in log),
    )


def explain_unplanned(name: str) -> str:
    """Why a file that no plan knows may be there."""
    if name.endswith(TEMPORARY):
        return "unfinished when the process ended; recovery removes it"
    if any(read_numbered(name, suffix) is not None for suffix in (*SEGMENT_SUFFIXES, "snapshot")):
        return "no part of the log: left over from a crash, a trim or a truncation; recovery removes it"
    return "no file of a log; recovery removes it, so move it if you want to keep it"


def _offsets(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(offset for name in names if (offset := read_numbered(name, suffix)) is not None)
