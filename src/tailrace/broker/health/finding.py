"""What one check found, and the checks that are the same before a broker runs and while it does.

A problem stops a broker from serving; a warning makes it slower or smaller than it could be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace.broker.health.words import long_duration
from tailrace.model.text import size_of

Status = Literal["ok", "warning", "problem"]

_DESCRIPTORS_GOOD = 4096
_DESCRIPTORS_MIN = 256
_USED_SHARE_WARNING = 0.8
_USED_SHARE_PROBLEM = 0.95
_ROOM_S_MIN = 24 * 3600.0  # a person should hear of a disk that is full tomorrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    found: str
    advice: str = ""


def judge_descriptors(*, soft: int | None, hard: int | None, used: int | None = None) -> Finding:
    """By how many there are; in a process that runs, by how many are left. None: there is no limit."""
    if soft is None:
        return Finding(check="file descriptors", status="ok", found="no limit")
    if used is None:
        status: Status = "ok" if soft >= _DESCRIPTORS_GOOD else "warning"
        status = "problem" if soft < _DESCRIPTORS_MIN else status
        found = f"{soft} (may be raised to {'any number' if hard is None else hard})"
    else:
        status, found = judge_share(used / max(soft, 1)), f"{used:,} of {soft:,} are open"
    advice = "Every connection and segment takes one. Try: ulimit -n 65536" if status != "ok" else ""
    return Finding(check="file descriptors", status=status, found=found, advice=advice)


def judge_free_space(
    free_bytes: int, *, least_bytes: int, growth_bytes_per_s: float | None = None, refusal: str | None = None
) -> Finding:
    """Whether writes are taken, and for how long yet if the log goes on growing as it does.

    `refusal` is why the engine refuses writes: a quota may be used up while bytes are free, and with
    `least_bytes` of 0 only a write that fails tells.
    """
    if refusal is not None and free_bytes >= least_bytes:
        return Finding(
            check="free space",
            status="problem",
            found=f"{size_of(free_bytes)}, and writes are refused",
            advice=f"The log says: {refusal}",
        )
    if free_bytes < least_bytes:
        return Finding(
            check="free space",
            status="problem",
            found=size_of(free_bytes),
            advice=f"Writes are refused below {size_of(least_bytes)}: free some space",
        )
    room = room_s(free_bytes, least_bytes=least_bytes, growth_bytes_per_s=growth_bytes_per_s)
    if room is None:
        return Finding(check="free space", status="ok", found=size_of(free_bytes))
    found = f"{size_of(free_bytes)}, room for {long_duration(room)} at this rate"
    if room >= _ROOM_S_MIN:
        return Finding(check="free space", status="ok", found=found)
    return Finding(
        check="free space",
        status="warning",
        found=found,
        advice="Free some space, or give the largest topics a shorter retention.ms or a retention.bytes",
    )


def room_s(free_bytes: int, *, least_bytes: int, growth_bytes_per_s: float | None) -> float | None:
    """How long the disk takes what comes; None where it does not grow, or nobody knows."""
    if growth_bytes_per_s is None or growth_bytes_per_s <= 0:
        return None
    return max(free_bytes - least_bytes, 0) / growth_bytes_per_s


def judge_share(share: float) -> Status:
    """By how much of a bound is taken."""
    if share >= _USED_SHARE_PROBLEM:
        return "problem"
    return "warning" if share >= _USED_SHARE_WARNING else "ok"
