"""`python -m bench.security.at_rest`: durable produces to an encrypted directory, as ratios to a plain one.

Two brokers with the segment engine differ in `[encryption]` alone; librdkafka is the client. They take turns,
and the median of the rounds counts.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tailrace.security.keys import create_key_file
from tailrace.server.ports import read_ports

GOALS: Final = {"durable small": 0.9, "1 MB": 0.7}
_SMALL_BYTES: Final = 200
_LARGE_BYTES: Final = 1_000_000
_START_S: Final = 30.0


def start(directory: Path, *, encrypted: bool, stack: ExitStack) -> int:
    """A broker of its own; the port of its Kafka listener."""
    data = directory / "data"
    text = f'[storage]\ndata_dir = "{data}"\n[broker]\n"message.max.bytes" = 2000000\n'
    if encrypted:
        create_key_file(directory / "key")
        text += f'[encryption]\nkey = {{ file = "{directory / "key"}" }}\n'
    (directory / "tailrace.toml").write_text(text)
    flags = ["--config", str(directory / "tailrace.toml")]
    ports = [word for name in ("kafka", "native", "http") for word in (f"--{name}-port", "0")]
    broker = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "up", *flags, *ports],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(broker.wait)
    stack.callback(broker.terminate)
    until = time.monotonic() + _START_S
    while time.monotonic() < until and broker.poll() is None:
        found = read_ports(data) if data.is_dir() else None
        if found is not None and found.kafka:
            return found.kafka
        time.sleep(0.05)
    raise RuntimeError("the broker did not start")


def produce(port: int, *, size: int, count: int, in_flight: int) -> float:
    """Produces per second, each acknowledged when it is durable, one record in each request."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "message.max.bytes": 2_000_000,
            "max.in.flight": in_flight,
        }
    )
    value = os.urandom(size)
    producer.produce("load", value, partition=0)
    producer.flush()
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
    return count / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security.at_rest", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", type=int, default=3000, help="small produces of a round")
    parser.add_argument("--large", type=int, default=150, help="produces of 1 MB of a round")
    arguments = parser.parse_args()
    loads = {
        "durable small": {"size": _SMALL_BYTES, "count": arguments.small, "in_flight": 5},
        "1 MB": {"size": _LARGE_BYTES, "count": arguments.large, "in_flight": 5},
    }
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-at-rest-")))
        ports = {}
        for name in ("plain", "encrypted"):
            (root / name).mkdir()
            ports[name] = start(root / name, encrypted=name == "encrypted", stack=stack)
        rates: dict[str, dict[str, list[float]]] = {load: {name: [] for name in ports} for load in loads}
        for _ in range(arguments.rounds):
            for load, settings in loads.items():
                for name, port in ports.items():
                    rates[load][name].append(produce(port, **settings))
    rows = []
    for load, found in rates.items():
        plain, encrypted = (statistics.median(found[name]) for name in ("plain", "encrypted"))
        rows.append({"load": load, "plain": plain, "encrypted": encrypted, "ratio": encrypted / plain})
        print(f"{load}: {plain:,.0f}/s plain, {encrypted:,.0f}/s encrypted, {encrypted / plain:.2f}x of it")
    print(json.dumps(rows))
    return 0 if all(row["ratio"] >= GOALS[str(row["load"])] for row in rows) else 1  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())
