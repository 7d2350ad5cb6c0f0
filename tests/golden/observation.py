"""What a broker serves, as plain JSON: written to the manifest once, and compared with it ever after.

Nothing here changes what it looks at: logs are fetched, groups and subscriptions are described. Counters that
begin with the process (`delivered`, `dead`) are left out.
"""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Any

from tests.golden import wire
from tests.golden.opening import get, http_of
from tests.interop.raw import committed, connect

_SUBSCRIPTION = ("topic", "mode", "settings", "dead_letter_topic", "created_ms", "lag", "reason")
_LETTER = ("offset", "timestamp", "key", "value", "headers", "origin", "reason", "deliveries")
_CURSOR = ("topic", "partition", "position", "acknowledged_beyond", "end", "lag", "epoch", "error")
_PIPELINE = ("v", "id", "pipeline", "name", "state", "config", "progress", "error", "stale")
_TIMES_MAX = 5


def observe(bootstrap: str, data_dir: Path) -> dict[str, Any]:
    """Everything that the server of this directory serves now."""
    http = http_of(data_dir)
    names = [each["name"] for each in get(f"{http}/subscriptions")["subscriptions"]]
    with connect(bootstrap) as connection:
        topics = {
            topic["name"]: observe_topic(connection, get(f"{http}/topics/{topic['name']}"))
            for topic in get(f"{http}/topics")["topics"]
            if not topic["internal"]
        }
    return {
        "topics": topics,
        "groups": {
            each["group"]: observe_group(bootstrap, get(f"{http}/consumer-groups/{each['group']}"))
            for each in get(f"{http}/consumer-groups")["groups"]
        },
        "subscriptions": {
            name: observe_subscription(get(f"{http}/subscriptions/{name}")) for name in sorted(names)
        },
        "dead_letters": {
            name: [{field: each[field] for field in _LETTER} for each in letters]
            for name in sorted(names)
            if (letters := get(f"{http}/subscriptions/{name}/dead-letters?limit=100")["dead_letters"])
        },
        "pipelines": [
            {name: each[name] for name in _PIPELINE} for each in get(f"{http}/pipelines")["pipelines"]
        ],
    }


def observe_topic(connection: socket.socket, described: dict[str, Any]) -> dict[str, Any]:
    """A topic's identity, its own settings, and every partition."""
    return {
        "id": described["topic_id"],
        "configs": described["configs"],
        "partitions": [
            observe_partition(connection, described["name"], index)
            for index in range(described["partitions"])
        ],
    }


def observe_partition(connection: socket.socket, topic: str, partition: int) -> dict[str, Any]:
    """Bounds, the bytes of every batch, and what the indexes of time and of leader epochs answer."""
    start = wire.list_offset(connection, topic, partition, wire.EARLIEST)
    end = wire.list_offset(connection, topic, partition, wire.LATEST)
    batches = wire.fetch_batches(connection, topic, partition, start)
    bounds = wire.fetch_partition(connection, topic, partition, end)
    times = sorted({batch.timestamp_max for batch in batches})
    return {
        "start": start,
        "end": end,
        "high_watermark": bounds.high_watermark,
        "last_stable_offset": bounds.last_stable_offset,
        "sha256": hashlib.sha256(b"".join(batch.data for batch in batches)).hexdigest(),
        "batches": [observe_batch(batch) for batch in batches],
        "times": [
            [at_ms, wire.list_offset(connection, topic, partition, at_ms)]
            for at_ms in times[:: max(1, len(times) // _TIMES_MAX)]
        ],
        "epochs": [
            [epoch, wire.epoch_end(connection, topic, partition, epoch)]
            for epoch in sorted({batch.leader_epoch for batch in batches})
        ],
    }


def observe_batch(batch: wire.RawBatch) -> str:
    """One line for a person; its checksum stands for every byte."""
    append_time = " append-time" if batch.attributes & 8 else ""
    horizon = " delete-horizon" if batch.attributes & 64 else ""
    kind = (" transactional" if batch.attributes & 16 else "") + (" control" if batch.attributes & 32 else "")
    producer = ""
    if batch.producer_id >= 0:
        producer = f" producer {batch.producer_id}/{batch.producer_epoch} sequence {batch.base_sequence}"
    return (
        f"{batch.base_offset}-{batch.last_offset} {batch.count} records {wire.CODECS[batch.attributes & 7]}"
        f"{append_time}{horizon}{kind}{producer} sha256 {hashlib.sha256(batch.data).hexdigest()}"
    )


def observe_group(bootstrap: str, described: dict[str, Any]) -> dict[str, Any]:
    """What a group has committed, with the text beside each offset."""
    found: dict[str, Any] = {}
    for each in described["offsets"]:
        offset, note = committed(bootstrap, described["group"], each["topic"], each["partition"])
        found[f"{each['topic']}-{each['partition']}"] = {"offset": offset, "metadata": note}
    return found


def observe_subscription(described: dict[str, Any]) -> dict[str, Any]:
    """The definition, and the cursor in every partition."""
    kept = {name: described[name] for name in _SUBSCRIPTION}
    cursors = [{name: each[name] for name in _CURSOR} for each in described["partitions"]]
    return {**kept, "partitions": cursors}
