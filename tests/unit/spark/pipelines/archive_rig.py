"""Topics with everything that records can have, and lakes as rows, so that the two can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

import tailrace
from tailrace.client.kafka import KafkaClient
from tailrace.records import BytesLike, Compression, build_batch
from tailrace.spark.lake import open_table, scan_files
from tailrace.spark.link import BrokerLink

DAY_MS = 86_400_000
NOON_MS = 1_794_830_400_000  # 2026-11-16T12:00:00Z

Header = tuple[str, bytes | None]
Record = tuple[int, bytes | None, bytes | None, Sequence[Header]]


class Row(NamedTuple):
    """A record, wherever it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def some_records(count: int, *, at_ms: int = NOON_MS, step_ms: int = 1) -> list[Record]:
    """Keys and values of all kinds: absent, empty, short, not text, repeated; some with headers."""
    records: list[Record] = []
    for n in range(count):
        key = (None, b"", b"key %d" % (n % 7), bytes([n % 256, 255]))[n % 4]
        value = (b"value %d" % n, None, b"", b"\x00\xff" * (n % 50))[n % 4]
        headers: tuple[Header, ...] = (
            () if n % 3 else (("trace", b"%d" % n), ("empty", b""), ("none", None), ("trace", b"twice"))
        )
        records.append((at_ms + n * step_ms, key, value, headers))
    return records


class Filler:
    """Produces whole batches to a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._link = BrokerLink(bootstrap, client_id="filler")

    def close(self) -> None:
        self._link.close()

    def fill(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        batch: int = 100,
        compression: Compression = Compression.NONE,
    ) -> None:
        for at in range(0, len(records), batch):
            self.send(topic, partition, build_batch(records[at : at + batch], compression=compression))

    def send(self, topic: str, partition: int, data: BytesLike) -> int:
        """One batch, as it is; where it went."""

        async def produce(client: KafkaClient) -> int:
            return (await client.produce(topic, partition, data)).base_offset

        return self._link.run(produce)


def topic_rows(broker: tailrace.Broker, topics: Iterable[str]) -> list[Row]:
    """What the topics have, read without any of the code under test."""
    return _sorted(
        Row(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        for topic in topics
        for r in broker.read(topic)
    )


def lake_rows(lake: Path) -> list[Row]:
    """What a plain reader finds that lists folders."""
    query = (
        'select topic, partition, "offset", epoch_us(timestamp) // 1000, key, value, headers'
        f" from read_parquet('{lake}/**/*.parquet', hive_partitioning=true, hive_types={{'topic': varchar}})"
    )
    if not any(lake.glob("topic=*/**/*.parquet")):
        return []
    with duckdb.connect() as base:
        found = base.execute(query).fetchall()
    return _sorted(
        Row._make([*row[:6], tuple((header["key"], header["value"]) for header in row[6])]) for row in found
    )


def table_rows(lake: Path) -> list[Row]:
    """What the table itself says, whatever its log."""
    table = open_table(lake)
    try:
        files = table.snapshot().files
    finally:
        table.close()
    rows = []
    for tp in {file.tp for file in files}:
        for batch in scan_files(lake, [file for file in files if file.tp == tp]):
            for row in batch.to_pylist():
                headers = tuple((header["key"], header["value"]) for header in row["headers"])
                time_ms = round(row["timestamp"].timestamp() * 1000)
                rows.append(
                    Row(tp.topic, row["partition"], row["offset"], time_ms, row["key"], row["value"], headers)
                )
    return _sorted(rows)


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[:3])
