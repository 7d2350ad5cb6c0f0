"""Processor time and memory of a process, alone or with all that it started, from /proc (see proc(5)).

A server that we started is its whole tree, because its command may be a script. A broker that was found
behind its port is that process alone: the pipelines of `tailrace up` are its children, and no part of it.

Processor time is user plus system time; that of a tree includes children that have ended and were waited for.
The kernel tells it in ticks of 10 ms, so windows should be seconds long. Resident memory of a tree counts a
shared page once per process.
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
    """What a process or a tree of them has used so far, and holds now."""

    cpu_s: float
    rss_bytes: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What one line of /proc/PID/stat says."""

    parent: int
    ticks: int  # of this process
    ended_ticks: int  # of its children that have ended and were waited for
    rss_pages: int


def read_stat(line: str) -> ProcessStat:
    """One line of /proc/PID/stat; a name may hold spaces and parentheses of its own."""
    fields = line.rpartition(")")[2].split()
    if len(fields) <= _RSS_PAGES:
        raise ValueError(f"not a line of /proc/PID/stat: {line[:80]!r}")
    return ProcessStat(
        parent=int(fields[_PARENT]),
        ticks=int(fields[_UTIME]) + int(fields[_STIME]),
        ended_ticks=int(fields[_CUTIME]) + int(fields[_CSTIME]),
        rss_pages=int(fields[_RSS_PAGES]),
    )


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


def process_usage(pid: int, *, proc: Path = _PROC) -> Usage | None:
    """Of one process without its children; None where there is no /proc, or no such process."""
    try:
        stat = read_stat((proc / str(pid) / "stat").read_text(errors="replace"))
    except (OSError, ValueError):
        return None
    return _sum_of([stat], ticks=stat.ticks)


def tree_usage(root: int, *, proc: Path = _PROC) -> Usage | None:
    """Of a process and its descendants; None where there is no /proc, or no such process."""
    stats = _read_all(proc)
    if root not in stats:
        return None
    tree = tree_of(root, {pid: stat.parent for pid, stat in stats.items()})
    members = [stats[pid] for pid in tree]
    return _sum_of(members, ticks=sum(stat.ticks + stat.ended_ticks for stat in members))


def _sum_of(members: list[ProcessStat], *, ticks: int) -> Usage:
    return Usage(
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
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
