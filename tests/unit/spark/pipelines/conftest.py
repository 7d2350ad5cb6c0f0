"""Small lakes made of rows that a test names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.spark.codec import KAFKA_SCHEMA, Piece
from tailrace.spark.lake import Advance, BadRange, Change, Staging, open_table, write_files


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRow:
    """A record of a lake; its time in ms."""

    partition: int = 0
    offset: int
    time_ms: int
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


Archive = Callable[..., Path]


@pytest.fixture
def row() -> type[LakeRow]:
    return LakeRow


@pytest.fixture
def archive_rows(tmp_path: Path) -> Archive:
    """Adds rows of a topic to a lake, a commit each time, and says where it is."""

    def add(
        rows: Sequence[LakeRow],
        *,
        topic: str = "orders",
        format: str | None = None,
        bad: Sequence[BadRange] = (),
        name: str = "lake",
    ) -> Path:
        root = tmp_path / name
        table = open_table(root, format=format, create=True)
        ends = {each.partition: end for each, end in table.snapshot().ends.items() if each.topic == topic}
        with Staging(root) as staging:
            files, advances = [], []
            for partition in sorted({each.partition for each in rows}):
                mine = [each for each in rows if each.partition == partition]
                written = write_files(
                    [_piece(topic, mine)],
                    root=str(root),
                    staging=staging.path,
                    topic=topic,
                    partition=partition,
                )
                files += written.files
                advances.append(
                    Advance(
                        topic=topic,
                        partition=partition,
                        start=ends.get(partition, mine[0].offset),
                        end=mine[-1].offset + 1,
                    )
                )
            table.commit(Change(operation="archive", add=files, advances=advances, bad=bad))
        table.close()
        return root

    return add


def _piece(topic: str, rows: Sequence[LakeRow]) -> Piece:
    columns = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [topic] * len(rows),
        "partition": [row.partition for row in rows],
        "offset": [row.offset for row in rows],
        "timestamp": [row.time_ms * 1000 for row in rows],
        "timestampType": [0] * len(rows),
        "headers": [[{"key": key, "value": value} for key, value in row.headers] for row in rows],
    }
    arrays = [pa.array(columns[each.name], each.type) for each in KAFKA_SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=KAFKA_SCHEMA)
    return Piece(rows=batch, bad=[], next_offset=rows[-1].offset + 1)
