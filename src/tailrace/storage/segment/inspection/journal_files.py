"""The journal from outside: its files, the rounds in them, and whether a round that counts is missing.

Whether one is missing is decided as recovery decides it, by `plan.read_journal`: a missing round that was
proved is damage, one that was not is a torn tail. Rounds at or below the checkpoint, the padding of a round
and the unused rest of a file are not data: nothing is ever read out of them, so what happened to them is at
most a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.model import StorageError
from tailrace.storage.segment.checkpoint import Checkpoint
from tailrace.storage.segment.entry import APPEND, CREATE, DELETE, TRIM, TRUNCATE
from tailrace.storage.segment.inspection.report import Findings, JournalFileReport
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.journal import (
    SECTOR,
    JournalHeader,
    Round,
    frame_bytes,
    holds_only_old_rounds,
    read_header,
    read_rounds,
)
from tailrace.storage.segment.names import JOURNAL_DIRECTORY, journal_file, read_journal_file
from tailrace.storage.segment.plan import entries_of, read_journal

KINDS = {APPEND: "append", CREATE: "create", TRUNCATE: "truncate", TRIM: "trim", DELETE: "delete"}
NOT_STARTED = "The directory does not open like this. Restore the file from a copy of the same moment"
_WRITTEN_ANEW = (
    "It is not needed: the checkpoint has passed its rounds, and its next use writes another header"
)
_NOT_NEEDED = "the checkpoint has passed it, so nothing needs it"


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in a journal file that is not a whole round, though the file was written there."""

    position: int
    end: int | None  # None: nothing readable follows
    first_lsn: int
    next_lsn: int | None


@dataclass(slots=True)
class JournalFileContent:
    """A journal file, as far as it is readable."""

    number: int
    data: memoryview
    listed: bool
    header: JournalHeader | None
    last_lsn: int | None = None
    rounds: int = 0
    rounds_above: int = 0
    end: int = SECTOR  # of the last whole round
    lsns_above: set[int] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    holes: list[Hole] = field(default_factory=list)

    @property
    def path(self) -> str:
        return journal_file(self.number)

    def report(self) -> JournalFileReport:
        return JournalFileReport(
            path=self.path,
            bytes=len(self.data),
            listed=self.listed,
            journal_id=self.header.journal_id if self.header else None,
            first_lsn=self.header.first_lsn if self.header else None,
            last_lsn=self.last_lsn,
            rounds=self.rounds,
            rounds_above=self.rounds_above,
            bytes_used=self.end if self.header else 0,
            entries=dict(self.kinds),
        )


def journal_numbers(source: Source) -> list[int]:
    try:
        names = source.names(JOURNAL_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [number for name in names if (number := read_journal_file(name)) is not None]


def read_journal_files(
    source: Source, checkpoint: Checkpoint | None, findings: Findings
) -> list[JournalFileContent]:
    present = set(journal_numbers(source))
    listed = present if checkpoint is None else set(checkpoint.journal_files)
    files: list[JournalFileContent] = []
    for number in sorted(present | listed):
        path = journal_file(number)
        try:
            data = source.read_whole(path)
        except OSError as error:
            findings.problem(path, f"cannot be read: {error.strerror}", NOT_STARTED)
            continue
        if data is None:
            if number in listed:
                findings.problem(path, "the journal file is missing, and CHECKPOINT lists it", NOT_STARTED)
            continue
        file = JournalFileContent(number, memoryview(data), number in listed, read_header(memoryview(data)))
        _examine_rounds(file, checkpoint.lsn if checkpoint else 0, findings)
        files.append(file)
    return files


def _examine_rounds(file: JournalFileContent, checkpoint_lsn: int, findings: Findings) -> None:
    header = file.header
    if not file.listed:
        findings.note(file.path, "CHECKPOINT does not list it; recovery removes it")
    if header is None:
        if file.listed:
            _judge_header(file, checkpoint_lsn, findings)
        return
    next_lsn = header.first_lsn
    for each in read_rounds(file.data, header):
        if each.position != file.end:
            file.holes.append(Hole(file.end, each.position, next_lsn, each.lsn))
        file.rounds += 1
        file.last_lsn = each.lsn
        next_lsn = each.lsn + 1
        file.end = each.position + frame_bytes(len(each.entries))
        if each.lsn > checkpoint_lsn:
            file.rounds_above += 1
            file.lsns_above.add(each.lsn)
        _count_entries(file, each, findings, needed=each.lsn > checkpoint_lsn)
    if file.data[file.end : file.end + 8] == header.journal_id.to_bytes(8, "little"):
        file.holes.append(Hole(file.end, None, next_lsn, None))
    for hole in file.holes:
        _note_hole(file, hole, checkpoint_lsn, findings)


def _judge_header(file: JournalFileContent, checkpoint_lsn: int, findings: Findings) -> None:
    message = "the header of the journal file is unreadable"
    if holds_only_old_rounds(file.data, checkpoint_lsn):
        findings.problem(file.path, message, _WRITTEN_ANEW, position=0, end=SECTOR)
    else:
        findings.problem(file.path, message, NOT_STARTED, position=0, end=SECTOR)


def _count_entries(file: JournalFileContent, each: Round, findings: Findings, *, needed: bool) -> None:
    try:
        file.kinds.update(KINDS[entry.kind] for entry in entries_of(each))
    except StorageError as error:
        if needed:
            findings.problem(file.path, error.reason, NOT_STARTED, position=each.position)
        else:
            findings.note(file.path, f"{error.reason}; {_NOT_NEEDED}", position=each.position)


def _note_hole(file: JournalFileContent, hole: Hole, checkpoint_lsn: int, findings: Findings) -> None:
    """A hole that matters is a problem by itself, once `read_journal` has said so."""
    last = hole.next_lsn - 1 if hole.next_lsn is not None else hole.first_lsn
    if last <= checkpoint_lsn:
        message = f"round {hole.first_lsn} is not whole; {_NOT_NEEDED}"
    elif hole.end is None:
        message = f"ends in round {hole.first_lsn}, which is not whole: torn by a crash, or being written"
    else:
        message = f"rounds {hole.first_lsn} to {last} are not whole, and later ones are"
    findings.note(file.path, message, position=hole.position)


def rounds_to_replay(
    files: Sequence[JournalFileContent], checkpoint: Checkpoint, findings: Findings
) -> list[Round]:
    """The rounds that a restart replays; none if the journal is damaged."""
    listed = [file for file in files if file.listed]
    if len(listed) < len(checkpoint.journal_files) or any(
        file.header is None and not holds_only_old_rounds(file.data, checkpoint.lsn) for file in listed
    ):
        return []
    try:
        content = read_journal({file.number: file.data for file in listed}, checkpoint)
    except StorageError as error:
        _report_damage(error, listed, checkpoint, findings)
        return []
    if rounds := content.rounds:
        span = f"{rounds[0].lsn} to {rounds[-1].lsn}"
        findings.note(
            JOURNAL_DIRECTORY,
            f"{len(rounds)} rounds (LSN {span}) lie above the checkpoint; a start replays them. "
            "That is so after a crash, and while the directory is served",
        )
    last_lsn = rounds[-1].lsn if rounds else checkpoint.lsn
    if content.last_lsn > last_lsn:
        findings.note(
            JOURNAL_DIRECTORY,
            f"rounds up to {content.last_lsn} were written behind a torn one and never acknowledged; "
            "a start leaves them out",
        )
    return rounds


def _report_damage(
    error: StorageError, files: Sequence[JournalFileContent], checkpoint: Checkpoint, findings: Findings
) -> None:
    """Name the file and the place where the first round that is missing should be."""
    present: set[int] = set().union(*(file.lsns_above for file in files))
    missing = checkpoint.lsn + 1
    while missing in present:
        missing += 1
    before = [file for file in files if file.header and 0 < file.header.first_lsn <= missing]
    if not before:
        findings.problem(error.path, error.reason, NOT_STARTED)
        return
    file = max(before, key=lambda file: file.header.first_lsn if file.header else 0)
    hole = next((hole for hole in file.holes if hole.first_lsn <= missing), None)
    position, end = (hole.position, hole.end) if hole else (file.end, None)
    findings.problem(file.path, error.reason, NOT_STARTED, position=position, end=end)
