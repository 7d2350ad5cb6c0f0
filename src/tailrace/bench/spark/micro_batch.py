"""What a small micro-batch costs: a stream over a topic, 1,000 records at a time, as fast as it goes.

Spark itself tells how long each trigger took (`triggerExecution`: planning, offsets, the write-ahead log, the
batch). The first ones are left out, because that is where everything is started.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from tailrace.bench.spark.load import Scene, rows_of
from tailrace.bench.wire.reader import LoadError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS = 1_000
_WARM = 5
_WAIT_S_MAX = 120.0
_LOOK_EVERY_S = 0.05


def measure_trigger_ms(scene: Scene, form: str, *, batches: int) -> float:
    """The median of so many triggers, in milliseconds."""
    with scene.folder() as folder:
        query = (
            scene.read_stream(form, maxOffsetsPerTrigger=str(BATCH_ROWS))
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder))
            .start()
        )
        try:
            return median(_wait_triggers(query, _WARM + batches)[_WARM:])
        finally:
            query.stop()


def _wait_triggers(query: StreamingQuery, wanted: int) -> list[float]:
    """How long each trigger with rows took, once there are so many of them; Spark keeps the last hundred."""
    deadline_s = time.monotonic() + _WAIT_S_MAX
    while True:
        found = [trigger_ms(each) for each in query.recentProgress if rows_of(each)]
        if len(found) >= wanted:
            return found[:wanted]
        error = query.exception()
        if error is not None:
            raise LoadError(f"the stream failed: {error}")
        if not query.isActive or time.monotonic() > deadline_s:
            raise LoadError(f"the stream made {len(found)} micro-batches, and not {wanted}")
        time.sleep(_LOOK_EVERY_S)  # progress of a query has no event that reaches Python


def trigger_ms(progress: Any) -> float:
    """The whole trigger of one micro-batch, as Spark measured it."""
    durations: Mapping[str, int] = (
        progress["durationMs"] if isinstance(progress, dict) else progress.durationMs
    )
    return float(durations["triggerExecution"])
