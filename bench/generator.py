"""One wire load in a process of its own: a job as JSON on standard input, what it found as JSON on standard
output.

It builds everything, runs the load, looks at the server's processes as the window opens and closes, and takes
away what it made. `error` in the answer is why there are no figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from bench.dialect import DIALECTS, Unsupported
from bench.load import WireJob
from tailrace.bench.wire import Lane, LoadError, Outcome, Usage, Window, drive, tree_usage


def run_job(job: WireJob) -> dict[str, object]:
    """The figures of one load."""
    dialect = DIALECTS[job.dialect](job)
    usages: list[Usage | None] = []
    window = Window(warm_s=job.warm_s, seconds=job.seconds, mark=lambda: usages.append(tree_usage(job.pid)))
    lanes: list[Lane] = []
    try:
        for number, part in enumerate(job.parts):
            lanes += dialect.lanes(part, name=f"part{number}")
        outcome = drive(lanes, window)
    finally:
        for lane in lanes:
            lane.sock.close()
        dialect.clean()
    return figures(outcome, usages)


def figures(outcome: Outcome, usages: Sequence[Usage | None]) -> dict[str, object]:
    """Rates and latencies of the last part; processor time per request and MB of all parts together."""
    measured = list(outcome.lanes.values())[-1]
    replies = sum(lane.replies for lane in outcome.lanes.values())
    payload_bytes = sum(lane.payload_bytes for lane in outcome.lanes.values())
    found: dict[str, object] = {
        "seconds": outcome.seconds,
        "count": measured.replies,
        "per_s": measured.replies / outcome.seconds,
        "mb_per_s": measured.payload_bytes / outcome.seconds / 1e6,
        "driver_cpu": outcome.driver_cpu_s / outcome.seconds,
    }
    if measured.latency is not None:
        found.update(measured.latency.as_row())
    before, after = usages
    if before is not None and after is not None and replies:
        cpu_s = after.cpu_s - before.cpu_s
        found["cpu"] = cpu_s / outcome.seconds
        found["cpu_us"] = cpu_s / replies * 1e6
        found["cpu_ms_per_mb"] = cpu_s * 1e3 / (payload_bytes / 1e6)
        found["rss_mb"] = after.rss_bytes / 1e6
    return found


def main() -> None:
    job = WireJob.from_row(json.load(sys.stdin))
    try:
        found = run_job(job)
    except Unsupported as error:
        found = {"unsupported": str(error)}
    except (LoadError, OSError) as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
