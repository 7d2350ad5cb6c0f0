"""`python -m bench.security`: 16 KiB produces and 1 MB fetches with TLS, as ratios to the same load without.

One broker in memory has both listeners, and librdkafka is the client, so that nothing but encryption differs.
Plain and TLS take turns; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

PRODUCE_BYTES: Final = 16 * 1024
FETCH_BYTES: Final = 1 << 20
GOALS: Final = {"produce 16 KiB": 0.6, "fetch 1 MB": 0.4}

_CONFIG: Final = """
[storage]
engine = "memory"
data_dir = "{directory}/data"
[topic_defaults]
"memory.max.bytes" = 536870912
[[listeners]]
name = "kafka"
protocol = "kafka"
address = "127.0.0.1:{plain}"
[[listeners]]
name = "encrypted"
protocol = "kafka"
address = "127.0.0.1:{tls}"
tls = {{cert = "{directory}/s/server.crt", key = "{directory}/s/server.key"}}
[[listeners]]
name = "native"
protocol = "native"
address = "127.0.0.1:0"
"""


def produce(settings: dict[str, Any], megabytes: int) -> float:
    """MB/s of produces of 16 KiB, one batch each."""
    producer = Producer({**settings, "linger.ms": 0, "batch.size": PRODUCE_BYTES + 512, "acks": "all"})
    value = os.urandom(PRODUCE_BYTES)
    count = megabytes * (1 << 20) // PRODUCE_BYTES
    began = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce("load", value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return count * PRODUCE_BYTES / (time.perf_counter() - began) / 1e6


def fetch(settings: dict[str, Any], megabytes: int) -> float:
    """MB/s of fetches of 1 MB."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1000,
        }
    )
    consumer.assign([TopicPartition("load", 0, 0)])
    wanted, got = megabytes << 20, 0
    began = time.perf_counter()
    while got < wanted:
        for message in consumer.consume(1000, 1.0):
            assert not message.error(), message.error()
            got += len(message.value() or b"")
    seconds = time.perf_counter() - began
    consumer.close()
    return got / seconds / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.security")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=128)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(Path(directory), given.rounds, given.megabytes), indent=2))


def measure(directory: Path, rounds: int, megabytes: int) -> dict[str, Any]:
    from tailrace.server.secure_start import init
    from tailrace.testing.port import free_port

    init(directory / "s")
    ports = {"plain": free_port(), "tls": free_port()}
    config = directory / "bench.toml"
    config.write_text(_CONFIG.format(directory=directory, **ports))
    command = [sys.executable, "-m", "tailrace", "up", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            while broker.stdout.readline() not in ("ready\n", ""):
                pass
            clients = {
                "plain": {"bootstrap.servers": f"127.0.0.1:{ports['plain']}"},
                "tls": {
                    "bootstrap.servers": f"127.0.0.1:{ports['tls']}",
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(directory / "s" / "ca.crt"),
                },
            }
            return {
                "produce 16 KiB": compare(produce, clients, rounds, megabytes, goal=GOALS["produce 16 KiB"]),
                "fetch 1 MB": compare(fetch, clients, rounds, megabytes, goal=GOALS["fetch 1 MB"]),
            }
        finally:
            broker.terminate()


def compare(
    load: Callable[[dict[str, Any], int], float],
    clients: dict[str, dict[str, Any]],
    rounds: int,
    megabytes: int,
    *,
    goal: float,
) -> dict[str, Any]:
    """Medians of both in MB/s, and their ratio."""
    found: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name, settings in clients.items():
            found[name].append(load(settings, megabytes))
    middle = {name: statistics.median(each) for name, each in found.items()}
    ratio = middle["tls"] / middle["plain"]
    return {
        "plain_mb_s": round(middle["plain"], 1),
        "tls_mb_s": round(middle["tls"], 1),
        "ratio": round(ratio, 3),
        "goal": goal,
        "rounds": {name: [round(each, 1) for each in values] for name, values in found.items()},
    }


if __name__ == "__main__":
    main()
