"""What the system says of the broker, from outside: memory, descriptors, threads, processor time, disk.

All of one process, from /proc (see proc(5)). The broker is one process, so nothing is summed. What the system
refuses to tell (`smaps_rollup` may be forbidden) is left out; a process that is gone is ProcessGone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tailrace.bench.wire.accounting import read_stat

_PROC = Path("/proc")
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own blocks are


class ProcessGone(Exception):
    """There is no such process any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One look at a process."""

    cpu_s: float  # since its start
    rss_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """What its resident memory is made of: its share of what it shares, and what no file stands behind."""

    pss_bytes: int
    anonymous_bytes: int


def look(pid: int, *, proc: Path = _PROC) -> Vitals:
    """Cheap enough for once a second."""
    place = proc / str(pid)
    try:
        stat = read_stat((place / "stat").read_text(errors="replace"))
        fields = read_fields((place / "status").read_text(errors="replace"))
        descriptors = len(os.listdir(place / "fd"))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} is gone") from error
    if "VmRSS" not in fields:  # a process that has ended and was not waited for has no memory
        raise ProcessGone(f"process {pid} has ended")
    return Vitals(
        cpu_s=stat.ticks / os.sysconf("SC_CLK_TCK"),
        rss_bytes=fields["VmRSS"] * 1024,
        threads=fields["Threads"],
        descriptors=descriptors,
    )


def memory_parts(pid: int, *, proc: Path = _PROC) -> MemoryParts | None:
    """Walks all pages of the process, milliseconds in which its page faults wait: not for every second."""
    try:
        fields = read_fields((proc / str(pid) / "smaps_rollup").read_text(errors="replace"))
    except OSError:
        return None
    if not {"Pss", "Anonymous"} <= fields.keys():
        return None
    return MemoryParts(pss_bytes=fields["Pss"] * 1024, anonymous_bytes=fields["Anonymous"] * 1024)


def read_fields(text: str) -> dict[str, int]:
    """The lines `Name:  number [kB]` of /proc/PID/status or smaps_rollup; other lines are passed over."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and words and words[0].isdecimal() and words[1:] in ([], ["kB"]):
            found[name] = int(words[0])
    return found


def disk_bytes(directory: Path) -> int:
    """What the files below a directory occupy; one that is deleted meanwhile counts for nothing."""
    total, waiting = 0, [os.fspath(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += _occupied(entry)
        except FileNotFoundError:
            continue
    return total


def _occupied(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0
