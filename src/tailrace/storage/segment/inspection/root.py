"""The data directory itself: whether it is one, which partitions it has, what else lies in it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from tailrace.storage.segment.inspection.expectation import Expectation, read_expectation
from tailrace.storage.segment.inspection.layout import leftover_kind
from tailrace.storage.segment.inspection.report import Findings, Leftover
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CHECKPOINT_COPY,
    DELETED,
    JOURNAL_DIRECTORY,
    STRAY,
    read_partition_directory,
)

_UNKNOWN = "A start puts it aside under stray-; move it away, or restore the CHECKPOINT that knows it"


@dataclass(frozen=True, slots=True)
class Root:
    """Directories of the partitions, as far as anything knows them, and what is no part of any log."""

    partitions: list[str]
    leftovers: list[Leftover]


def open_root(path: str | os.PathLike[str], *, fresh: bool = False) -> Source:
    """A data directory, to be read; FileNotFoundError if there is none."""
    source = Source(path, fresh=fresh)
    names = set(source.names())
    if not names & {CHECKPOINT, CHECKPOINT_COPY, JOURNAL_DIRECTORY + "/"} and not any(
        map(_is_partition, names)
    ):
        raise FileNotFoundError(
            errno.ENOENT, "no log is kept here, there is neither CHECKPOINT nor journal", source.root
        )
    return source


def read_root(source: Source, expectation: Expectation, findings: Findings) -> Root:
    """Sort what is in the data directory; a partition that nothing knows is a problem."""
    names = source.names()
    if expectation.checkpoint is None:
        known = {name.rstrip("/") for name in names if _is_partition(name)}
    else:
        known = set(expectation.plans)
        unknown = {name.rstrip("/") for name in names if _is_partition(name)} - known - expectation.deleted
        if unknown and expectation.is_outdated(source):  # perhaps created since
            expectation = read_expectation(source)
    leftovers: list[Leftover] = []
    for name in names:
        kind = leftover_kind(name, known=known | set(expectation.plans), deleted=expectation.deleted)
        if kind is not None:
            leftovers.append(Leftover(path=name.rstrip("/"), kind=kind, bytes=source.tree_bytes(name)))
            _judge_leftover(leftovers[-1], findings)
    return Root(sorted(known), leftovers)


def _is_partition(name: str) -> bool:
    return name.endswith("/") and read_partition_directory(name.rstrip("/")) is not None


def _judge_leftover(leftover: Leftover, findings: Findings) -> None:
    path = leftover.path
    if leftover.kind == "deleted":
        state = "is being removed" if path.startswith(DELETED) else "is deleted by the journal"
        findings.note(path, f"{state}; a start finishes that")
    elif path.startswith(STRAY):
        findings.note(
            path, "was put aside by a start, because nothing knew it; it is not served and not checked"
        )
    elif leftover.kind == "stray":
        findings.problem(path, "neither CHECKPOINT nor journal knows this partition", _UNKNOWN)
