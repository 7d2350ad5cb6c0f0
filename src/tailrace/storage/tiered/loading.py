"""What a writer reads when it takes over: the logs, where their chunks are, and what follows from them.

Ends come from one query over the tables. Epochs, producers and aborted transactions come from the newest
snapshot of each log and the chunks above it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tailrace.model import Offset, PartitionId
from tailrace.postgres import Connection, Row
from tailrace.storage.api import LogConfig
from tailrace.storage.tiered.chunk import batches_of, check_chunk
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.retention_class import DAY_MS, KEPT
from tailrace.storage.tiered.shared import Shared
from tailrace.storage.tiered.span import Span
from tailrace.storage.tiered.state import LogState, read_state
from tailrace.storage.tiered.statement import NAME_COLUMNS, read_chunk, read_name

logger = logging.getLogger(__name__)

_LOGS = """
SELECT log, topic_id, partition, start_offset, end_floor FROM tailrace.logs WHERE NOT deleted ORDER BY log
"""
_SPANS = f"""
SELECT log, class, CASE WHEN class = {KEPT} THEN 0 ELSE appended_ms / {DAY_MS} END AS day,
       min(base_offset), max(next_offset), min(max_timestamp), max(max_timestamp), sum(size), max(appended_ms)
FROM tailrace.chunks GROUP BY 1, 2, 3 ORDER BY 1, 4
"""
_SNAPSHOTS = (
    "SELECT DISTINCT ON (log) log, next_offset, data FROM tailrace.snapshots ORDER BY log, next_offset DESC"
)
_ABOVE = f"""
SELECT {NAME_COLUMNS}, data FROM tailrace.chunks
WHERE class = $1 AND log = $2 AND appended_ms >= $3 AND appended_ms < $4 AND next_offset > $5
  AND base_offset < $6
ORDER BY base_offset LIMIT 16
"""
_NEWEST = f"""
SELECT {NAME_COLUMNS} FROM tailrace.chunks
WHERE class = $1 AND log = $2 AND appended_ms >= $3 AND appended_ms < $4
ORDER BY base_offset DESC LIMIT $5
"""
_NAMES_AT_START = 64

MakeLog = Callable[[int, PartitionId, LogConfig, Offset, Offset], TieredLog]


async def load_logs(connection: Connection, shared: Shared, make_log: MakeLog) -> None:
    """Fill `shared.logs` with what the database has."""
    shared.next_log = await connection.fetchval("SELECT next_log FROM tailrace.writer")
    spans: dict[int, list[Row]] = {}
    for row in await connection.fetch(_SPANS):
        spans.setdefault(row[0], []).append(row)
        shared.append_time_ms(at_least=row[8])
    snapshots = {row[0]: row for row in await connection.fetch(_SNAPSHOTS)}
    for row in await connection.fetch(_LOGS):
        log_id, start, floor = row["log"], row["start_offset"], row["end_floor"]
        found = spans.get(log_id, [])
        end = max([start, floor, *(each[4] for each in found)])
        partition_id = PartitionId(row["topic_id"], row["partition"])
        log = make_log(log_id, partition_id, LogConfig(), Offset(start), Offset(end))
        for each in found:
            log.spans.load(Span(*(each[place] for place in range(1, 8))))
        log.spans.trim(start)
        await _load_state(connection, log, snapshots.get(log_id))
        await _load_names(connection, log)
        shared.logs[partition_id] = log


async def _load_state(connection: Connection, log: TieredLog, snapshot: Row | None) -> None:
    place, state = 0, LogState()
    if snapshot is not None and snapshot[1] <= log.end_offset:
        known = read_state(snapshot[2])
        if known is None:
            logger.error("snapshot of %s at %d cannot be read: its state is made again", log, snapshot[1])
        else:
            place, state = snapshot[1], known
            log.snapshot_offset = place
    place = max(place, log.start_offset)
    state.trim(log.start_offset)
    for span in log.spans.from_offset(place):
        while place < span.next_offset:
            rows = await connection.fetch(
                _ABOVE, span.retention, log.id, *span.times, place, span.next_offset
            )
            if not rows:
                break
            for row in rows:
                for batch in batches_of(check_chunk(read_chunk(row), log=log), log=log):
                    if batch.base_offset >= place:
                        state.apply(batch)
                place = max(place, row["next_offset"])
    state.producers.settle()
    log.load(state)


async def _load_names(connection: Connection, log: TieredLog) -> None:
    """The names of the newest chunks, which are those that Redis may have."""
    last = next(reversed(list(log.spans)), None)
    if last is not None:
        rows = await connection.fetch(_NEWEST, last.retention, log.id, *last.times, _NAMES_AT_START)
        for row in reversed(rows):
            log.recent.add(read_name(row))
