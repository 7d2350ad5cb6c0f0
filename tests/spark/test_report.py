"""A report on a lake through a real Spark: the figures of the workers are on the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.spark.codec import KAFKA_SCHEMA, Piece
from tailrace.spark.lake import Advance, Change, Staging, open_table, write_files
from tailrace.spark.pipelines.report import ReportConfig, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def test_the_page_has_what_the_workers_counted(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    table = open_table(lake, create=True)
    with Staging(lake) as staging:
        files, advances = [], []
        for partition in range(3):
            columns = {
                "key": [b"<script>alert(1)</script>"] * ROWS,
                "value": [b"v"] * ROWS,
                "topic": ["orders"] * ROWS,
                "partition": [partition] * ROWS,
                "offset": range(ROWS),
                "timestamp": [1_700_000_000_000_000 + at for at in range(ROWS)],
                "timestampType": [0] * ROWS,
                "headers": [[]] * ROWS,
            }
            arrays = [pa.array(columns[each.name], each.type) for each in KAFKA_SCHEMA]
            rows = pa.RecordBatch.from_arrays(arrays, schema=KAFKA_SCHEMA)
            written = write_files(
                [Piece(rows=rows, bad=[], next_offset=ROWS)],
                root=str(lake),
                staging=staging.path,
                topic="orders",
                partition=partition,
            )
            files += written.files
            advances.append(Advance(topic="orders", partition=partition, start=0, end=ROWS))
        table.commit(Change(operation="archive", add=files, advances=advances))
    table.close()
    done = report(ReportConfig(lake=str(lake), out=str(tmp_path / "page.html")), spark=spark)
    page = (tmp_path / "page.html").read_text()
    assert (done.rows, done.topics, done.files) == (3 * ROWS, ("orders",), 3)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "3,000" in page
