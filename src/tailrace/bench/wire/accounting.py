"""Processor time and memory of a process and all that it started, from /proc (see proc(5)).

Processor time is user plus system time of every process of the tree, and of children that have ended and were
waited for. The kernel tells it in ticks of 10 ms, so windows should be seconds long. Resident memory counts a
shared page once per process; brokers of one process, as most are, are not affected.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# Fields are counted behind the name, which ends with the last parenthesis.
_PARENT, _UTIME, _STIME, _CUTIME, _CSTIME, _RSS_PAGES = 1, 11, 12, 13, 14, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process tree has used so far, and holds now."""

    cpu_s: float
    rss_bytes: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What one line of /proc/PID/stat says."""

    parent: int
    ticks: int
    rss_pages: int


def read_stat(line: str) -> ProcessStat:
    """One line of /proc/PID/stat; a name may hold spaces and parentheses of its own."""
    fields = line.rpartition(")")[2].split()
    if len(fields) <= _RSS_PAGES:
        raise ValueError(f"not a line of /proc/PID/stat: {line[:80]!r}")
    ticks = sum(int(fields[at]) for at in (_UTIME, _STIME, _CUTIME, _CSTIME))
    return ProcessStat(parent=int(fields[_PARENT]), ticks=ticks, rss_pages=int(fields[_RSS_PAGES]))


def tree_of(root: int, parents: dict[int, int]) -> set[int]:
    """The root and everything below it, of a map from process to parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = {root}, [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def tree_usage(root: int, *, proc: Path = _PROC) -> Usage | None:
    """Of a process and its descendants; None where there is no /proc, or no such process."""
    stats = _read_all(proc)
    if root not in stats:
        return None
    tree = tree_of(root, {pid: stat.parent for pid, stat in stats.items()})
    members = [stats[pid] for pid in tree]
    return Usage(
        cpu_s=sum(stat.ticks for stat in members) / os.sysconf("SC_CLK_TCK"),
        rss_bytes=sum(stat.rss_pages for stat in members) * os.sysconf("SC_PAGE_SIZE"),
        processes=len(members),
    )


def _read_all(proc: Path) -> dict[int, ProcessStat]:
    if not proc.is_dir():
        return {}
    stats = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                stats[int(entry.name)] = read_stat((entry / "stat").read_text(errors="replace"))
            except (OSError, ValueError):
                continue  # it ended while we looked
    return stats
