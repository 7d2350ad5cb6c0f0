"""One load of one contender in a process of its own.

It reads its job as one JSON object, makes the topic if it is the first of a step, runs the load, prints what
it found as one JSON object, and removes the topic if it is the last.

publish   leaves its messages for `deliver`, and says how many there are as `total`
deliver   drains them
one       a publish at a time
latency   over two connections
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping

from bench.generator import figures
from bench.native.contender import messaging_of
from tailrace.bench.native import load
from tailrace.bench.native.messaging import Messaging
from tailrace.bench.wire import LoadError
from tailrace.bench.wire.accounting import Usage
from tailrace.bench.wire.broker import usage_of
from tailrace.bench.wire.driver import Outcome, Window
from tailrace.server.loop import loop_factory

Row = dict[str, object]


async def run_job(job: Mapping[str, object]) -> Row:
    """The figures of one load."""
    role = str(job["role"])
    messaging = messaging_of(str(job["kind"]), job)
    await messaging.open()
    try:
        if role != "deliver":
            await messaging.create()
        found = await _measure(role, messaging, job)
        if role != "publish":
            await messaging.remove()
    finally:
        await messaging.close()
    return found


async def _measure(role: str, messaging: Messaging, job: Mapping[str, object]) -> Row:
    usages: list[Usage | None] = []
    pid = int(str(job["pid"]))
    window = Window(
        warm_s=float(str(job["warm_s"])),
        seconds=float(str(job["seconds"])),
        mark=lambda: usages.append(usage_of([pid])),
    )
    if role == "deliver":
        return figures(await load.deliver(messaging, window, count=int(str(job["count"]))), usages)
    if role == "latency":
        return figures(await _end_to_end(messaging, window, job), usages)
    published = await load.publish(messaging, window, in_flight=1 if role == "one" else load.IN_FLIGHT)
    return {**figures(published.outcome, usages), "total": published.total}


async def _end_to_end(publishing: Messaging, window: Window, job: Mapping[str, object]) -> Outcome:
    receiving = messaging_of(str(job["kind"]), job)
    await receiving.open()
    try:
        return await load.end_to_end(publishing, receiving, window)
    finally:
        await receiving.close()


def main() -> None:
    job = json.load(sys.stdin)
    if job["core"] is not None:
        os.sched_setaffinity(0, {job["core"]})
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(run_job(job))
    except LoadError as error:
        found = {"error": str(error)}
    except Exception as error:  # every client has errors of its own, and each is a finding
        found = {"error": f"{type(error).__name__}: {error}"}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
