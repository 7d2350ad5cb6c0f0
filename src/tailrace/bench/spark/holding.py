"""What the archive's workers hold while they work off a short backlog, and a long one after it.

In a process of its own: workers are reused, and what another load made them hold they keep.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.bench.process import run_python
from tailrace.bench.spark.memory import Peak, watch_workers


def measure_holding(bootstrap: str, topics: Sequence[str], *, master: str) -> list[Peak]:
    """The peak of each topic's archive, in a new process; TailraceError with its last words if that fails."""
    printed = asyncio.run(run_python("tailrace.bench.spark.child", "memory", bootstrap, master, *topics))
    return [Peak(**each) for each in json.loads(printed.strip().splitlines()[-1])]


def archive_all(bootstrap: str, topics: Sequence[str], *, master: str) -> list[Peak]:
    """One topic after the other, each into a lake of its own, in a session of this process."""
    from tailrace.spark.pipelines.archive import ArchiveConfig, archive
    from tailrace.spark.pipelines.session import open_session
    from tailrace.spark.pipelines.spark_settings import SparkSettings

    peaks = []
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=Path.cwd()) as place,
        open_session(SparkSettings(master=master), name="tailrace bench spark: memory") as spark,
    ):
        for topic in topics:
            config = ArchiveConfig(bootstrap=bootstrap, topic=(topic,), to=str(Path(place, topic)), once=True)
            with watch_workers() as peak:
                archive(config, spark=spark)
            peaks.append(peak)
    return peaks
