"""Small work on a lake: stage rows, archive them, compact, read all back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.records import build_batch
from tailrace.spark.codec import Piece, decode_pieces
from tailrace.spark.lake import (
    Advance,
    Change,
    DataFile,
    Snapshot,
    Staging,
    Table,
    Written,
    open_table,
    scan_files,
    write_files,
)

NOON_MS = 1_790_078_400_000  # 2026-09-22T12:00:00Z
DAY_MS = 86_400_000
Record = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def record_at(offset: int, *, time_ms: int = NOON_MS) -> Record:
    """A record whose every field follows from its offset."""
    key = None if offset % 3 == 0 else b"key-%d" % offset
    value = None if offset % 5 == 0 else b"value-%d" % offset
    headers = [("at", b"%d" % offset), ("none", None)] if offset % 2 else []
    return time_ms, key, value, headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What the tests of this folder do with a lake."""

    root: Path

    def open(self, format: str | None = None) -> Table:
        return open_table(self.root, format=format, create=True)

    def pieces(
        self,
        start: int,
        end: int,
        *,
        topic: str = "orders",
        partition: int = 0,
        time_ms: Callable[[int], int] = lambda offset: NOON_MS + offset,
        piece_rows: int = 1_000_000,
    ) -> Iterator[Piece]:
        for first in range(start, end, piece_rows):
            last = min(first + piece_rows, end)
            records = [record_at(offset, time_ms=time_ms(offset)) for offset in range(first, last)]
            data = build_batch(records, base_offset=first)
            yield from decode_pieces(
                data, start=first, end=last, topic=topic, partition=partition, headers=True, keeps_bad=True
            )

    def write(self, staging: str, pieces: Iterator[Piece], **options: Any) -> Written:
        return write_files(
            pieces,
            root=str(self.root),
            staging=staging,
            **{"topic": "orders", "partition": 0, **options},
        )

    def stage(self, start: int, end: int, **options: Any) -> Written:
        """Rows in a staging folder that nobody holds any more."""
        place = {key: options.pop(key) for key in ("file_bytes_max", "compression") if key in options}
        tp = {key: options[key] for key in ("topic", "partition") if key in options}
        with Staging(self.root) as staging:
            return self.write(staging.path, self.pieces(start, end, **options), **tp, **place)

    def addition(self, start: int, end: int, **options: Any) -> Change:
        """The change that archives these offsets."""
        written = self.stage(start, end, **options)
        advance = Advance(
            topic=options.get("topic", "orders"), partition=options.get("partition", 0), start=start, end=end
        )
        return Change(operation="archive", add=written.files, advances=[advance])

    def archive(self, table: Table, start: int, end: int, **options: Any) -> Snapshot:
        return table.commit(self.addition(start, end, **options))

    def compaction(self, files: Sequence[DataFile]) -> Change:
        """The change that makes one file of several of one day."""
        rows = (Piece(rows=rows, bad=[], next_offset=0) for rows in scan_files(self.root, files))
        with Staging(self.root) as staging:
            tp = {"topic": files[0].topic, "partition": files[0].partition}
            return Change(operation="compact", add=self.write(staging.path, rows, **tp).files, remove=files)

    def offsets(self, files: Sequence[DataFile], **options: Any) -> list[int]:
        """Of the rows of one partition, as they come."""
        return [
            offset
            for rows in scan_files(self.root, files, **options)
            for offset in rows.column("offset").to_pylist()
        ]

    def visible(self) -> list[str]:
        """The Parquet files that somebody sees who lists folders."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet"))
