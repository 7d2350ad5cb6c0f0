"""From schema 1, whose tables had no checksums, to the keys and values of schema 2.

    meta(key, value)                                            schema version, cluster id, next producer id
    topics(id, name, configs, internal, deleted)                configs as JSON
    partitions(topic_id, number, leader, leader_epoch, replicas, isr)     node ids separated by commas

The old file stays beside the new one, under another name. Nothing in it could be checked, so what does not
look like metadata is refused here, with the topic that it belongs to.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from uuid import UUID

from tailrace.broker.ports import PartitionRecord, TopicRecord
from tailrace.cluster import record
from tailrace.cluster.database import damaged
from tailrace.cluster.store import Entry, Rows
from tailrace.model import BrokerId, Epoch

KEPT = ".schema-1"
"""What is added to the name of the old file."""

_REVISION = 1  # of everything that was migrated


def read_schema_1(database: sqlite3.Connection, path: str) -> Rows:
    """What a file of schema 1 holds, as the rows of schema 2; StorageError if that makes no sense."""
    meta = dict(database.execute("SELECT key, value FROM meta"))
    try:
        texts = {
            record.CLUSTER: record.write_cluster(meta["cluster_id"]),
            record.PRODUCER_IDS: record.write_producer_ids(int(meta["next_producer_id"])),
        }
    except (KeyError, ValueError) as error:
        raise damaged(path, f"its table meta cannot be read: {error!r}") from error
    for topic in _read_topics(database, path):
        texts.update(record.topic_texts(topic))
        if topic.deleted:
            texts[record.deleted_key(topic.id)] = record.write_deleted(topic.name)
        else:
            texts[record.name_key(topic.name)] = record.write_name(topic.id)
    return Rows(
        revision=_REVISION, entries={key: Entry(text, _REVISION) for key, text in sorted(texts.items())}
    )


def _read_topics(database: sqlite3.Connection, path: str) -> Iterator[TopicRecord]:
    partitions = _read_partitions(database, path)
    for topic_id, name, configs, internal, deleted in database.execute(
        "SELECT id, name, configs, internal, deleted FROM topics"
    ):
        try:
            yield TopicRecord(
                id=UUID(bytes=topic_id),
                name=name,
                partitions=tuple(partitions.pop(topic_id, ())),
                configs=record.check_configs(json.loads(configs)),
                internal=bool(internal),
                deleted=bool(deleted),
            )
        except (ValueError, TypeError) as error:
            raise damaged(path, f"the row of topic {name!r} cannot be read: {error}") from error
    if partitions:
        raise damaged(path, f"it has partitions of {len(partitions)} topics that it does not have")


def _read_partitions(database: sqlite3.Connection, path: str) -> dict[bytes, list[PartitionRecord]]:
    found: dict[bytes, list[PartitionRecord]] = {}
    for topic_id, number, leader, epoch, replicas, isr in database.execute(
        "SELECT topic_id, number, leader, leader_epoch, replicas, isr FROM partitions ORDER BY number"
    ):
        try:
            found.setdefault(topic_id, []).append(
                PartitionRecord(
                    index=int(number),
                    leader=BrokerId(int(leader)),
                    leader_epoch=Epoch(int(epoch)),
                    replicas=_read_ids(replicas),
                    isr=_read_ids(isr),
                )
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise damaged(
                path, f"partition {number} of topic {topic_id!r} cannot be read: {error}"
            ) from error
    return found


def _read_ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(number)) for number in text.split(",") if number)
