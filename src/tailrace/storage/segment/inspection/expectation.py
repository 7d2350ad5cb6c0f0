"""What a data directory should hold: its CHECKPOINT, its journal, and the plan that follows from both.

Where CHECKPOINT is unreadable nothing is expected; where the journal is damaged, what the checkpoint alone
says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tailrace.model import StorageError
from tailrace.storage.segment.checkpoint import Checkpoint, read_checkpoint
from tailrace.storage.segment.entry import Truncate
from tailrace.storage.segment.inspection.journal_files import (
    NOT_STARTED,
    JournalFileContent,
    journal_numbers,
    read_journal_files,
    rounds_to_replay,
)
from tailrace.storage.segment.inspection.report import Findings, JournalFileReport
from tailrace.storage.segment.inspection.source import Source, Stamp
from tailrace.storage.segment.journal import Round
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CHECKPOINT_COPY,
    JOURNAL_DIRECTORY,
    TEMPORARY,
    journal_file,
    read_partition_directory,
)
from tailrace.storage.segment.plan import Plan, entries_of, plan_recovery

_ATTEMPTS_MAX = 3
_REBUILT = "The directory does not open like this. Try: tailrace storage rebuild-checkpoint DIR"

Stamps = tuple[Stamp | None, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ExpectedPartition:
    """What is expected of one partition; nothing, without a plan."""

    plan: Plan | None
    truncated: bool = False  # by a round above the checkpoint: then the snapshot it names may be missing


@dataclass(slots=True)
class Expectation:
    """What was read, and what it leads to expect of the partitions."""

    checkpoint: Checkpoint | None
    checkpoint_bytes: int
    journal: list[JournalFileReport]
    plans: dict[str, Plan]  # by directory
    deleted: set[str]  # directories whose deletion is in the journal
    truncated: set[int]  # lives
    findings: Findings
    stamps: Stamps  # of CHECKPOINT and journal, taken before they were read

    def of(self, path: str) -> ExpectedPartition:
        plan = self.plans.get(path)
        return ExpectedPartition(plan, plan is not None and plan.life in self.truncated)

    def is_outdated(self, source: Source) -> bool:
        """Whether the directory moved on since."""
        return _stamps(source) != self.stamps


def read_expectation(source: Source) -> Expectation:
    """Read CHECKPOINT and journal; again, if something is wrong with them and they changed meanwhile."""
    for _ in range(_ATTEMPTS_MAX):
        found = _read_once(source)
        if not found.findings.problems or not found.is_outdated(source):
            break
    return found


def look_at_partition(
    source: Source,
    expectation: Expectation,
    path: str,
    look: Callable[[ExpectedPartition, Findings], _T],
    findings: Findings,
) -> _T:
    """Look at one partition; again, with a new plan, if something is wrong and anything moved meanwhile.

    So a directory that is being served is not blamed for what it did between two of our reads.
    """
    attempt = 1
    while True:
        before, collected = source.stamp(path), Findings()
        found = look(expectation.of(path), collected)
        moved = source.stamp(path) != before or expectation.is_outdated(source)
        if not collected.problems or not moved or attempt == _ATTEMPTS_MAX:
            break
        expectation = read_expectation(source)
        if expectation.checkpoint is not None and path not in expectation.plans:
            collected = Findings()
            collected.note(path, "deleted while it was looked at")
            break
        attempt += 1
    findings.add(collected)
    return found


def _read_once(source: Source) -> Expectation:
    stamps, findings = _stamps(source), Findings()
    names = source.names()
    data, copy = (_read_checkpoint_file(source, path, findings) for path in (CHECKPOINT, CHECKPOINT_COPY))
    stored, copied = (
        read_checkpoint(memoryview(each)) if each is not None else None for each in (data, copy)
    )
    checkpoint = stored or copied
    files = read_journal_files(source, checkpoint, findings)
    if data is None and copy is None:
        _judge_missing_checkpoint(names, files, findings)
    else:
        _judge_checkpoints(data, copy, stored, copied, findings)
    for path in (CHECKPOINT + TEMPORARY, CHECKPOINT_COPY + TEMPORARY):
        if path in names:
            findings.note(path, "a checkpoint that was not finished; the next one replaces it")
    rounds = rounds_to_replay(files, checkpoint, findings) if checkpoint else []
    plans, deleted = _plan(checkpoint, rounds, findings)
    return Expectation(
        checkpoint=checkpoint,
        checkpoint_bytes=len((data if stored else copy) or b""),
        journal=[file.report() for file in files],
        plans=plans,
        deleted=deleted,
        truncated=_truncated(rounds),
        findings=findings,
        stamps=stamps,
    )


def _stamps(source: Source) -> Stamps:
    journal = (journal_file(number) for number in journal_numbers(source))
    paths = [CHECKPOINT, CHECKPOINT_COPY, JOURNAL_DIRECTORY, *journal]
    return tuple(source.stamp(path) for path in paths)


# ---- CHECKPOINT


def _read_checkpoint_file(source: Source, path: str, findings: Findings) -> bytes | None:
    try:
        return source.read_whole(path)
    except OSError as error:
        findings.note(path, f"cannot be read: {error.strerror}")
        return b""


def _judge_checkpoints(
    data: bytes | None,
    copy: bytes | None,
    stored: Checkpoint | None,
    copied: Checkpoint | None,
    findings: Findings,
) -> None:
    """Either file is enough for a start, which then writes both anew."""
    if stored is None:
        reason = "it is missing" if data is None else "its checksum does not hold"
        if copied is None:
            reason += ", and so is its copy: nothing says what the files should hold"
        hint = _REBUILT if copied is None else "A start takes the copy, and writes both files anew"
        findings.problem(CHECKPOINT, reason, hint, position=0, end=len(data or b""))
    if copied is None and copy is not None:
        hint = (
            _REBUILT if stored is None else "It is not needed: a start, or the next checkpoint, replaces it"
        )
        findings.problem(CHECKPOINT_COPY, "its checksum does not hold", hint, position=0, end=len(copy))


def _judge_missing_checkpoint(
    names: Sequence[str], files: Sequence[JournalFileContent], findings: Findings
) -> None:
    partitions = [name for name in names if read_partition_directory(name.rstrip("/"))]
    if partitions or any(file.rounds for file in files):
        findings.problem(
            CHECKPOINT, "it is missing, and partitions or rounds of the journal are there", _REBUILT
        )
    else:
        findings.note(CHECKPOINT, "not there yet: nothing was ever stored here")


# ---- the plan


def _plan(
    checkpoint: Checkpoint | None, rounds: Sequence[Round], findings: Findings
) -> tuple[dict[str, Plan], set[str]]:
    if checkpoint is None:
        return {}, set()
    try:
        plans, deleted, _ = plan_recovery(checkpoint.rows, rounds)
    except StorageError as error:
        if not findings.problems:  # an entry that makes no sense was reported with its place
            findings.problem(error.path, error.reason, NOT_STARTED)
        plans, deleted, _ = plan_recovery(checkpoint.rows, ())
    return {plan.path: plan for plan in plans}, deleted


def _truncated(rounds: Sequence[Round]) -> set[int]:
    """Lives of which the rounds truncate something."""
    try:
        entries = [entry for each in rounds for entry in entries_of(each)]
    except StorageError:
        return set()
    return {entry.life for entry in entries if isinstance(entry, Truncate)}
