"""partition.json: whose log a directory holds, for a person, and for a rebuild of lost metadata.

    {"crc32c":"...","content":{"cluster_id":"...","partition":0,"topic":"orders","topic_id":"..."}}

The engine itself needs none of it. It is written beside and renamed, and not synced: after a power cut it may
be missing, and the next start writes it again.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from uuid import UUID

from tailrace.model import PartitionId
from tailrace.runtime import Disk
from tailrace.storage.checksummed import read_checksummed, write_checksummed
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.names import LABEL, TEMPORARY

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Whose log it is."""

    cluster_id: str
    topic: str
    partition_id: PartitionId


def write_label(label: Label) -> bytes:
    """The whole file."""
    content = {
        "cluster_id": label.cluster_id,
        "partition": label.partition_id.partition,
        "topic": label.topic,
        "topic_id": str(label.partition_id.topic_id),
    }
    return write_checksummed(json.dumps(content, sort_keys=True, separators=(",", ":")))


def read_label(data: bytes) -> Label | None:
    """None if it is not what was written."""
    content = read_checksummed(data)
    if content is None:
        return None
    try:
        found = json.loads(content)
        cluster_id, topic, partition = found["cluster_id"], found["topic"], found["partition"]
        partition_id = PartitionId(UUID(found["topic_id"]), partition)
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(cluster_id, str) or not isinstance(topic, str) or type(partition) is not int:
        return None
    return Label(cluster_id=cluster_id, topic=topic, partition_id=partition_id)


async def put_label(disk: Disk, directory: str, data: bytes) -> None:
    """Write the file unless it is there. A failure is logged only: the log does not depend on it."""
    path = f"{directory}/{LABEL}"
    try:
        if await read_file(disk, path) == data:
            return
        file = await disk.create(path + TEMPORARY)
        await file.write(0, [data])
        file.close()
        await disk.rename(path + TEMPORARY, path)
    except OSError as error:
        logger.warning("label not written, the next start tries again: %s %s", path, error)
