"""One load in a process of its own: reads its job as JSON, prints its figures as JSON.

Confluent's producers have threads of their own and a call that waits for each commit: every producer gets a
thread here too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

from bench.transactions.load import PARTITIONS, percentiles
from bench.transactions.wire import run_lag, run_producers

_PATIENCE_S = 60.0
_LAG_PER_S = 50.0


def main() -> None:
    job = json.loads(sys.stdin.read())
    if job["core"] is not None:
        os.sched_setaffinity(0, {job["core"]})
    try:
        print(json.dumps(measure(job)))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))


def measure(job: dict[str, Any]) -> dict[str, float]:
    """The figures of one load."""
    bootstrap = f"127.0.0.1:{job['port']}"
    make_topic(bootstrap, job["topic"])
    if job["role"] == "lag":
        lags = run_lag(
            job["port"],
            job["topic"],
            transactional=job["transactional"],
            isolation=job["isolation"],
            per_s=_LAG_PER_S,
            seconds=job["seconds"],
        )
        return percentiles(asyncio.run(lags))
    if job["role"] == "tv2":
        running = run_producers(
            job["port"],
            job["topic"],
            producers=job["producers"],
            partitions=PARTITIONS,
            warm_s=job["warm_s"],
            for_s=job["seconds"],
        )
        ran = asyncio.run(running)
    else:
        ran = run_confluent(bootstrap, job)
    took = ran["took"]
    return {"per_s": len(took) / ran["seconds"], "repeats": ran["repeats"], **percentiles(took)}


def make_topic(bootstrap: str, topic: str) -> None:
    """The topic, and the coordinator's own by asking for it once."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_PATIENCE_S)
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "first"}).init_transactions(_PATIENCE_S)


def run_confluent(bootstrap: str, job: dict[str, Any]) -> dict[str, Any]:
    """One transaction after the other in every thread."""
    from confluent_kafka import Producer

    took: list[float] = []
    failures: list[BaseException] = []
    ready = threading.Barrier(job["producers"] + 1)
    times = {"began": 0.0, "ends": 0.0}

    def produce(number: int) -> None:
        name = f"{job['topic']}-{number}"
        try:
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
            producer.init_transactions(_PATIENCE_S)
        except BaseException as error:
            failures.append(error)
            ready.abort()
            return
        try:
            ready.wait(_PATIENCE_S)
            while (sent := time.perf_counter()) < times["ends"]:
                producer.begin_transaction()
                producer.produce(job["topic"], b"x" * 100, partition=number % PARTITIONS)
                producer.commit_transaction(_PATIENCE_S)
                if sent >= times["began"]:
                    took.append(time.perf_counter() - sent)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(job["producers"])]
    for thread in threads:
        thread.start()
    times["began"] = time.perf_counter() + _PATIENCE_S  # nobody counts before the clock is set
    times["ends"] = times["began"]
    while ready.n_waiting < job["producers"] and not ready.broken:
        time.sleep(0.01)  # a barrier has no event for this
    times["began"] = time.perf_counter() + job["warm_s"]
    times["ends"] = times["began"] + job["seconds"]
    if not ready.broken:
        ready.wait(_PATIENCE_S)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return {"took": took, "seconds": time.perf_counter() - times["began"], "repeats": 0}


if __name__ == "__main__":
    main()
