"""When rows leave that are to keep their distances in time.

A moment on the clock, the epoch, stands for the timestamp of the first row; from there on the clock counts
`speed` times as fast. A replay that falls behind does not skip: what is due leaves at once, until it has
caught up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.spark.pipelines.replay_merge import Longs
from tailrace.spark.pipelines.replay_plan import Epoch

WAIT_S_MIN = 0.005
"""Rows that follow each other more closely share a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Let so many rows leave now; if none, wait so long and ask again."""

    count: int
    wait_s: float


def plan_step(due_us: Longs, *, epoch: Epoch, speed: float, now_s: float, until_s: float) -> Step:
    """What to do with rows that are due at these times, in order; waits no longer than `until_s`."""
    event_us = epoch.event_us + (now_s - epoch.wall_s) * 1_000_000 * speed
    count = int(np.searchsorted(due_us, event_us, side="right"))
    if count or not len(due_us):
        return Step(count=count, wait_s=0.0)
    due_s = (int(due_us[0]) - event_us) / 1_000_000 / speed
    return Step(count=0, wait_s=max(min(max(due_s, WAIT_S_MIN), until_s - now_s), 0.0))
