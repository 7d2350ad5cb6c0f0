"""What Spark's Python workers hold at most while something runs, from /proc (see proc(5)).

The workers are Python processes below the JVM, which is below us. They are looked at every 20 ms, so a peak
that is shorter may be missed. Resident memory counts what workers share (the libraries) in each of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.bench.wire.accounting import ProcessStat, read_stat, tree_of

_PROC = Path("/proc")
_LOOK_EVERY_S = 0.02
_WORKER_MARK = b"pyspark"


@dataclass(slots=True)
class Peak:
    """The most that was seen; zero where there is no /proc, or no worker."""

    worker_bytes: int = 0
    """Of the largest worker."""
    total_bytes: int = 0
    """Of all of them together."""
    workers: int = 0

    def add(self, sizes: list[int]) -> None:
        """What each of them holds at one moment."""
        self.worker_bytes = max(self.worker_bytes, max(sizes, default=0))
        self.total_bytes = max(self.total_bytes, sum(sizes))
        self.workers = max(self.workers, len(sizes))


@contextmanager
def watch_workers(root: int | None = None, *, proc: Path = _PROC) -> Iterator[Peak]:
    """The peak of the workers below a process, by default this one, for the time of the block."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        while not done.is_set():
            peak.add(worker_sizes(root or os.getpid(), proc=proc))
            done.wait(_LOOK_EVERY_S)

    thread = threading.Thread(target=look, name="worker memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def worker_sizes(root: int, *, proc: Path = _PROC) -> list[int]:
    """Resident bytes of every Python worker below a process."""
    stats = _read_stats(proc)
    below = tree_of(root, {pid: stat.parent for pid, stat in stats.items()}) - {root}
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return [stats[pid].rss_pages * page_bytes for pid in below if _is_worker(proc / str(pid))]


def _is_worker(entry: Path) -> bool:
    """Whether a process is Python that runs a module of pyspark's; the JVM names pyspark too, as a word."""
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended while we looked
    if b"python" not in Path(os.fsdecode(words[0])).name.encode():
        return False
    return any(word.startswith(_WORKER_MARK) for word in words[1:])


def _read_stats(proc: Path) -> dict[int, ProcessStat]:
    if not proc.is_dir():
        return {}
    stats = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                stats[int(entry.name)] = read_stat((entry / "stat").read_text(errors="replace"))
            except (OSError, ValueError):
                continue
    return stats
