"""Whether metadata and logs belong together, judged before a start changes anything. Pure.

A crash of ours leaves at most empty logs that no topic has (ADR 0006). Logs that hold records and belong to
no topic mean that the metadata is lost, older than the logs, or that of another data directory. So does a log
that was written in a later epoch than the metadata knows of. To go on would hide those records, and write
new ones under the same names from offset 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.ports import MetadataImage
from tailrace.model import PartitionId, StorageError, TopicPartition
from tailrace.storage.api import LogConfig, PartitionLog

_FOR_EVER_MS = (1 << 63) - 1

KEEP_EVERYTHING = LogConfig(
    delete=False, compact=False, segment_ms=_FOR_EVER_MS, producer_idle_ms=_FOR_EVER_MS
)
"""The settings of a log that is left exactly as it is."""


def check_logs(image: MetadataImage, logs: Sequence[PartitionLog], *, data_dir: str) -> None:
    """Raise StorageError if the logs cannot be those of the image."""
    known = {
        PartitionId(topic.id, each.index): (TopicPartition(topic.name, each.index), each.leader_epoch)
        for topic in image.topics
        for each in topic.partitions
    }
    # A cluster without an id was never started, so no log can be its own, not even an empty one.
    is_new = not image.cluster_id
    unknown = [log for log in logs if log.partition_id not in known and (log.end_offset or is_new)]
    if unknown:
        first = unknown[0]
        raise _refused(
            data_dir,
            f"the metadata does not know {len(unknown)} of {len(logs)} logs. One is {first.partition_id}, "
            f"with offsets {first.start_offset} to {first.end_offset}. The metadata is missing, older than "
            "the logs, or that of another directory",
        )
    for log in logs:
        name, epoch = known.get(log.partition_id, (None, 0))
        newest = log.epochs.latest
        if name is not None and newest is not None and newest > epoch:
            raise _refused(
                data_dir,
                f"the metadata is older than the logs: {name} was written in epoch {newest}, and the "
                f"metadata has epoch {epoch}",
            )


def _refused(data_dir: str, reason: str) -> StorageError:
    return StorageError(
        "start in",
        data_dir,
        reason,
        hint=f"No record is lost. To bring the topics back: tailrace storage rebuild-metadata {data_dir}",
    )
