"""Who listens on a TCP port of this machine, as far as Linux tells us."""

from __future__ import annotations

import os
from pathlib import Path

_LISTEN = "0A"


def find_occupant(port: int, *, proc: Path = Path("/proc")) -> tuple[int, str] | None:
    """Process id and program of a listener on `port`; None if it cannot be known."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening_inodes(proc / "net" / table, port)}
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in proc.iterdir():
        if process.name.isdecimal() and _has_open(process / "fd", wanted):
            try:
                return int(process.name), (process / "comm").read_text().strip()
            except OSError:
                return None
    return None


def _listening_inodes(table: Path, port: int) -> list[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    ending = f":{port:04X}"
    return [row[9] for row in rows if len(row) > 9 and row[3] == _LISTEN and row[1].endswith(ending)]


def _has_open(directory: Path, wanted: set[str]) -> bool:
    try:
        names = os.listdir(directory)
    except OSError:
        return False  # another user's process, or one that has just ended
    for name in names:
        try:
            if os.readlink(directory / name) in wanted:
                return True
        except OSError:
            continue  # closed in the meantime
    return False
