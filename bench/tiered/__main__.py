"""Rounds against plain INSERT: which ack path is faster where producers wait for each message?

    python -m bench.tiered [--seconds 4] [--dsn URI]

Both paths in turn, in one run, on one PostgreSQL that syncs: rounds of chunks by one function call on one
connection (the engine's own way), and one INSERT per message on a connection per producer. A producer sends
one message of 100 bytes and waits for its acknowledgement. Shown by number of producers: messages a second,
the median wait of both paths, and their ratio. Turns alternate: a slow moment of the machine meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.postgres import Dsn, connect, parse_dsn
from tailrace.postgres.pool import close_connection
from tailrace.records import build_batch, read_batch
from tailrace.security import Secret
from tailrace.storage import LogConfig
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.storage import TieredStorage

PARTITIONS = 8
PRODUCERS = (1, 16, 64)
TURNS = 3
_INSERT = "INSERT INTO plain (partition, place, data) VALUES ($1, $2, $3)"


@dataclass(slots=True)
class Path_:
    """What one way of acknowledging did."""

    per_second: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)


Send = Callable[[int], Awaitable[None]]


async def load(send: Send, producers: int, seconds: float, into: Path_) -> None:
    """Producers that send one message at a time for so long."""
    until = time.monotonic() + seconds
    count = 0

    async def produce(number: int) -> None:
        nonlocal count
        while (began := time.monotonic()) < until:
            await send(number)
            into.waits_ms.append((time.monotonic() - began) * 1000)
            count += 1

    began = time.monotonic()
    await asyncio.gather(*(produce(number) for number in range(producers)))
    into.per_second.append(count / (time.monotonic() - began))


async def rounds(dsn: Dsn, producers: int, seconds: float, into: Path_) -> None:
    storage = await TieredStorage.open(TieredConfig(dsn=dsn, days_ahead=0))
    topic = UUID(int=time.time_ns())
    logs = [await storage.create(PartitionId(topic, number), LogConfig()) for number in range(PARTITIONS)]
    data = bytes(build_batch([(time.time_ns() // 10**6, None, bytes(100), ())]))

    async def send(number: int) -> None:
        log = logs[number % PARTITIONS]
        log.append(read_batch(data), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(log.end_offset))

    try:
        await load(send, producers, seconds, into)
    finally:
        await storage.close()


async def inserts(dsn: Dsn, producers: int, seconds: float, into: Path_) -> None:
    connections = [await connect(dsn) for _ in range(producers)]
    await connections[0].execute(
        "CREATE TABLE IF NOT EXISTS plain (partition integer, place bigint, data bytea,"
        " PRIMARY KEY (partition, place))"
    )
    places = [await connections[0].fetchval("SELECT coalesce(max(place), 0) FROM plain")] * producers

    async def send(number: int) -> None:
        places[number] += 1
        await connections[number].execute(_INSERT, number, places[number], bytes(170))

    try:
        await load(send, producers, seconds, into)
    finally:
        for each in connections:
            await close_connection(each)


async def measure(dsn: Dsn, seconds: float) -> None:
    print("producers   rounds/s   INSERT/s   ratio   median wait ms: rounds  INSERT")
    for producers in PRODUCERS:
        ours, plain = Path_(), Path_()
        for _ in range(TURNS):
            await rounds(dsn, producers, seconds, ours)
            await inserts(dsn, producers, seconds, plain)
        a, b = statistics.median(ours.per_second), statistics.median(plain.per_second)
        waits = statistics.median(ours.waits_ms), statistics.median(plain.waits_ms)
        print(f"{producers:9} {a:10.0f} {b:10.0f} {a / b:7.2f} {waits[0]:23.2f} {waits[1]:7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--dsn", default="")
    given = parser.parse_args()
    if given.dsn:
        asyncio.run(measure(parse_dsn(Secret(given.dsn), key="--dsn"), given.seconds))
        return
    from tests.postgres import PostgresServer, parsed

    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir="/var/tmp") as name:
        server = PostgresServer(Path(name), settings=("max_connections=120", "shared_buffers=128MB"))
        try:
            asyncio.run(measure(parsed(server.dsn()), given.seconds))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
