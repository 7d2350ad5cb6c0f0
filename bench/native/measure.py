"""One step of one contender, once: its client processes one after the other, on one core."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from bench.child import Row, ask_child
from bench.native.contender import LATENCY, RATE, Contender
from tailrace.bench.wire import LoadError

_PATIENCE_S = 90.0
_MODULE = "bench.native.client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long a load runs."""

    warm_s: float
    seconds: float
    latency_s: float


def measure_step(step: str, contender: Contender, durations: Durations) -> dict[str, Row]:
    """The figures by the name of their load, or the error of each that has none."""
    job: Row = {
        "kind": contender.kind,
        "port": contender.server.port,
        "bootstrap": contender.bootstrap(),
        "pid": contender.server.pid,
        "topic": f"bench-{uuid.uuid4().hex[:12]}",
        "core": client_core(),
        "warm_s": durations.warm_s,
        "seconds": durations.latency_s if step == LATENCY else durations.seconds,
    }
    os.sync()  # what the one before wrote is not written during this one
    if step != RATE:
        return {step: _ask({**job, "role": step})}
    published = _ask({**job, "role": "publish"})
    if "error" in published:
        return {"publish": published}
    return {"publish": published, "deliver": _ask({**job, "role": "deliver", "count": published["total"]})}


def _ask(job: Row) -> Row:
    try:
        return ask_child(_MODULE, job, timeout_s=float(str(job["seconds"])) + _PATIENCE_S)
    except (LoadError, OSError) as error:
        return {"error": str(error)}


def client_core() -> int | None:
    """The core for every client process: the last one, if there is another for the server."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[-1] if len(cores) > 1 else None
