"""The logs of a data directory, by what CHECKPOINT and journal say, to be compared with metadata.

Reads CHECKPOINT, journal, labels and snapshots, and the batch headers of few segments. Writes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tailrace.model import PartitionId, StorageError
from tailrace.storage.segment.inspection.expectation import read_expectation
from tailrace.storage.segment.inspection.layout import Layout, plan_layout
from tailrace.storage.segment.inspection.root import open_root
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.inspection.walk import WalkBroken, walk_headers
from tailrace.storage.segment.label import Label, read_label
from tailrace.storage.segment.names import CHECKPOINT, CHECKPOINT_COPY, LABEL, numbered
from tailrace.storage.segment.plan import Plan
from tailrace.storage.segment.snapshot import read_snapshot

_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """One log as a start would find it."""

    path: str
    partition_id: PartitionId
    start: int
    end: int
    newest_epoch: int  # in which something was written; -1: nothing was
    greatest_producer_id: int  # as far as it is known without reading all of it; -1: none
    label: Label | None  # None: missing, or not what was written


def list_logs(path: str | os.PathLike[str]) -> list[StoredLog]:
    """Every log, by its directory; StorageError if CHECKPOINT or journal do not tell.

    One readable file of CHECKPOINT and its copy is enough, as for a start. FileNotFoundError if there is no
    data directory.
    """
    source = open_root(path)
    expectation = read_expectation(source)
    enough = () if expectation.checkpoint is None else (CHECKPOINT, CHECKPOINT_COPY)
    for problem in expectation.findings.problems:
        if problem.path not in enough:
            raise StorageError("read", problem.path, problem.message, hint=problem.hint)
    if expectation.checkpoint is None:
        return []
    return [_describe(source, plan) for _, plan in sorted(expectation.plans.items())]


def _describe(source: Source, plan: Plan) -> StoredLog:
    try:
        names = source.names(plan.path)
    except FileNotFoundError:  # the journal is about to create it, or it is lost: then a start says so
        names = []
    epoch, producer = _newest_state(source, plan, plan_layout(names, plan))
    label = read_label(source.read_whole(f"{plan.path}/{LABEL}") or b"") if LABEL in names else None
    return StoredLog(
        path=plan.path,
        partition_id=plan.partition_id,
        start=plan.shape.start,
        end=plan.shape.end,
        newest_epoch=epoch,
        greatest_producer_id=producer,
        label=label if label is not None and label.partition_id == plan.partition_id else None,
    )


def _newest_state(source: Source, plan: Plan, layout: Layout) -> tuple[int, int]:
    """The newest epoch and the greatest producer id: in snapshot, segments behind it, and journal."""
    epoch, producer, known_to = _NONE, _NONE, _NONE
    for offset in sorted(layout.snapshots, reverse=True):
        found = read_snapshot(source.read_whole(f"{plan.path}/{numbered(offset, 'snapshot')}") or b"")
        if found is not None:
            epoch = _NONE if found.epochs.latest is None else found.epochs.latest
            producer, known_to = found.producers.greatest_id, offset
            break
    if known_to < plan.solid_offset:
        for base in sorted(layout.present, reverse=True):
            epochs, producers = _walk_segment(source, f"{plan.path}/{numbered(base, 'log')}")
            epoch, producer = max([epoch, *epochs]), max([producer, *producers])
            if base <= known_to or (epochs and known_to == _NONE):
                break
    for append in plan.surviving():
        epoch = max(epoch, append.batch.leader_epoch)
        producer = max(producer, append.batch.producer_id)
    return epoch, producer


def _walk_segment(source: Source, path: str) -> tuple[list[int], list[int]]:
    """The epochs and producer ids of its batches, up to the first that is not whole."""
    epochs: list[int] = []
    producers: list[int] = []
    try:
        with source.open(path) as file:
            for _, batch in walk_headers(file, begin=0, end=file.size()):
                epochs.append(batch.leader_epoch)
                producers.append(batch.producer_id)
    except (OSError, WalkBroken):
        pass  # its space is reserved ahead, or it is damaged: `log verify` tells which
    return epochs, producers
