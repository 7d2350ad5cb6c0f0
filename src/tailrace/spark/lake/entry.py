"""The files of a table's log: commits, and checkpoints of everything so far.

    {"v":1,"version":7,"operation":"archive","at_ms":1794830400000,"add":[...],"remove":[...],...}\\n
    {"crc32c":"1f0a33c2"}\\n

Two lines of JSON. The second is the CRC32C of the first without its line feed, so that a file that was cut,
patched or rotted is found before anything is believed. `v` is the version of this format: a greater one
than ours is refused, fields that we do not know are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from tailrace.model import StorageError, TopicPartition
from tailrace.records import crc32c
from tailrace.spark.lake.change import Advance, BadRange, Change
from tailrace.spark.lake.data_file import (
    DataFile,
    LakeFileError,
    StagedFile,
    check_data_file,
    check_staged_file,
)
from tailrace.spark.lake.state import State

ENTRY_FORMAT = 1
_HINT = "Restore the file from a backup"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where a partition of the table ends (exclusive)."""

    topic: str
    partition: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A commit as it is logged."""

    v: int = ENTRY_FORMAT
    version: int
    operation: str
    at_ms: int
    add: list[StagedFile]
    remove: list[str]
    advances: list[Advance]
    bad: list[BadRange]
    topics: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The whole state as of a commit."""

    v: int = ENTRY_FORMAT
    version: int
    files: list[DataFile]
    ends: list[End]
    bad: list[BadRange]
    topics: dict[str, str] = field(default_factory=dict)


class _Head(msgspec.Struct):
    v: int
    version: int


class _Foot(msgspec.Struct):
    crc32c: str


def entry_of(change: Change, *, version: int, at_ms: int) -> Entry:
    return Entry(
        version=version,
        operation=change.operation,
        at_ms=at_ms,
        add=list(change.add),
        remove=[file.path for file in change.remove],
        advances=list(change.advances),
        bad=list(change.bad),
        topics=dict(change.topics),
    )


def checkpoint_of(state: State) -> Checkpoint:
    return Checkpoint(
        version=state.version,
        files=list(state.files.values()),
        ends=[End(topic=tp.topic, partition=tp.partition, end=end) for tp, end in state.ends.items()],
        bad=state.bad,
        topics=state.topics,
    )


def state_of(checkpoint: Checkpoint) -> State:
    return State(
        version=checkpoint.version,
        files={file.path: file for file in checkpoint.files},
        ends={TopicPartition(each.topic, each.partition): each.end for each in checkpoint.ends},
        bad=list(checkpoint.bad),
        topics=dict(checkpoint.topics),
    )


def write_entry(entry: Entry | Checkpoint) -> bytes:
    """The bytes of a log file."""
    line = msgspec.json.encode(entry)
    return line + b'\n{"crc32c":"%08x"}\n' % crc32c(line)


def read_entry(data: bytes, *, path: str, version: int) -> Entry:
    """A commit, or StorageError that names the file."""
    entry = _read(data, Entry, path=path, version=version)
    try:
        for staged in entry.add:
            check_staged_file(staged)
    except LakeFileError as error:
        raise damaged(path, str(error)) from error
    return entry


def read_checkpoint(data: bytes, *, path: str, version: int) -> Checkpoint:
    """A checkpoint, or StorageError that names the file."""
    checkpoint = _read(data, Checkpoint, path=path, version=version)
    try:
        for file in checkpoint.files:
            check_data_file(file)
    except LakeFileError as error:
        raise damaged(path, str(error)) from error
    return checkpoint


def damaged(path: str, reason: str) -> StorageError:
    return StorageError("read", path, f"the log of the lake is damaged: {reason}", hint=_HINT)


def _read(data: bytes, kind: type[_T], *, path: str, version: int) -> _T:
    line, _, foot = data.partition(b"\n")
    head = _decode(line, _Head, path)
    if head.v > ENTRY_FORMAT:
        raise StorageError(
            "read",
            path,
            f"the lake was written in format {head.v}, this program knows up to {ENTRY_FORMAT}",
            hint="Use a newer Tailrace",
        )
    if not foot.endswith(b"\n") or _decode(foot, _Foot, path).crc32c != f"{crc32c(line):08x}":
        raise damaged(path, "its checksum does not fit")
    if head.version != version:
        raise damaged(path, f"it says that it is version {head.version}")
    return _decode(line, kind, path)


def _decode(line: bytes, kind: type[_T], path: str) -> _T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
