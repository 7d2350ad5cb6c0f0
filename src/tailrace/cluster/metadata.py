"""The broker's metadata port over any store.

Every change is a compare-and-swap on the versions of what it was planned from. A change that lost a race is
planned again from what the store holds then, a bounded number of times.
"""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.cluster import record
from tailrace.cluster.copying import write_copy
from tailrace.cluster.store import ABSENT, Entry, Rows, Store
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, StorageError

_ATTEMPTS_MAX = 10
_FIRST_PRODUCER_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a commit shall do."""

    checks: Mapping[str, int]
    puts: Mapping[str, str] = field(default_factory=dict)
    deletes: Sequence[str] = ()


class StoredMetadata:
    """Topics, partitions and ids in a store, which it closes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<StoredMetadata in {self._store}>"

    # ---- the port

    async def begin(
        self, node_id: BrokerId, *, check: Callable[[MetadataImage], None] | None = None
    ) -> MetadataImage:
        image = self._image(await self._store.read())
        if check is not None:
            check(image)
        await self._change("", lambda rows: _plan_begin(rows, node_id))
        return self._image(await self._store.read())

    async def create_topic(self, topic: TopicRecord) -> None:
        await self._change(record.name_key(topic.name), lambda rows: _plan_creation(rows, topic))

    async def add_partitions(self, topic_id: UUID, partitions: Sequence[PartitionRecord]) -> None:
        key = record.topic_key(topic_id)
        added = {
            record.partition_key(topic_id, each.index): record.write_partition(each) for each in partitions
        }

        def plan(rows: Rows) -> _Change:
            entry = _known(rows, topic_id)
            grown = record.change_topic(key, entry.value, partitions_added=len(added))
            return _Change(
                checks={key: entry.version, **dict.fromkeys(added, ABSENT)}, puts={key: grown, **added}
            )

        await self._change(key, plan)

    async def set_configs(self, topic_id: UUID, configs: Mapping[str, str]) -> None:
        key = record.topic_key(topic_id)

        def plan(rows: Rows) -> _Change:
            entry = _known(rows, topic_id)
            changed = record.change_topic(key, entry.value, configs=configs)
            return _Change(checks={key: entry.version}, puts={key: changed})

        await self._change(key, plan)

    async def set_settings(self, owner: str, settings: Mapping[str, str]) -> None:
        key = record.settings_key(owner)

        def plan(rows: Rows) -> _Change:
            checks = {key: _version(rows.entries, key)}
            if not settings:
                return _Change(checks=checks, deletes=[key])
            return _Change(checks=checks, puts={key: record.write_settings(settings)})

        await self._change(key, plan)

    async def mark_deleted(self, topic_id: UUID) -> None:
        key = record.topic_key(topic_id)

        def plan(rows: Rows) -> _Change:
            entry = _known(rows, topic_id)
            name = record.topic_name(key, entry.value)
            puts = {record.deleted_key(topic_id): record.write_deleted(name)}
            return _Change(checks={key: entry.version}, puts=puts, deletes=[record.name_key(name)])

        await self._change(key, plan)

    async def forget_topic(self, topic_id: UUID) -> None:
        def plan(rows: Rows) -> _Change:
            keys = [record.topic_key(topic_id), record.deleted_key(topic_id), *rows.entries]
            return _Change(checks={key: entry.version for key, entry in rows.entries.items()}, deletes=keys)

        await self._change(record.partition_prefix(topic_id), plan)

    async def reserve_producer_ids(self, count: int) -> int:
        first = 0

        def plan(rows: Rows) -> _Change:
            nonlocal first
            first = record.read_producer_ids(rows.entries)
            entry = rows.entries.get(record.PRODUCER_IDS)
            checks = {record.PRODUCER_IDS: ABSENT if entry is None else entry.version}
            return _Change(
                checks=checks, puts={record.PRODUCER_IDS: record.write_producer_ids(first + count)}
            )

        await self._change(record.PRODUCER_IDS, plan)
        return first

    async def copy_to(self, directory: str) -> None:
        rows = await self._store.read()
        try:
            await asyncio.to_thread(write_copy, Path(directory), rows)
        except (OSError, sqlite3.Error) as error:
            raise BrokerError(
                f"the metadata cannot be copied to {directory}: {error}. Check the disk, then try again",
                code=ErrorCode.KAFKA_STORAGE_ERROR,
            ) from error

    async def close(self) -> None:
        await self._store.close()

    # ---- inside

    async def _change(self, prefix: str, plan: Callable[[Rows], _Change]) -> None:
        """Plan from what is under `prefix`, and commit; again, if something changed in between."""
        for _ in range(_ATTEMPTS_MAX):
            rows = await self._store.read(prefix)
            try:
                change = plan(rows)
            except ValueError as error:
                raise self._unreadable(error) from error
            done = await self._store.commit(checks=change.checks, puts=change.puts, deletes=change.deletes)
            if done is not None:
                return
        raise BrokerError(
            f"{prefix or 'the metadata'} was changed by others {_ATTEMPTS_MAX} times in a row. Try again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _image(self, rows: Rows) -> MetadataImage:
        try:
            return record.read_image(rows.entries)
        except ValueError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: ValueError) -> StorageError:
        return StorageError(
            "read metadata in",
            str(self._store),
            str(error),
            hint="Stop the broker, then: tailrace storage rebuild-metadata DIR",
        )


def _plan_begin(rows: Rows, node_id: BrokerId) -> _Change:
    """A first start gives the cluster its id; every start raises the epochs of what this node leads."""
    entries = rows.entries
    puts: dict[str, str] = {}
    if record.CLUSTER not in entries:
        puts |= first_start()
    for topic in record.read_image(entries).topics:
        for each in topic.partitions:
            if each.leader == node_id:
                raised = replace(each, leader_epoch=Epoch(each.leader_epoch + 1))
                puts[record.partition_key(topic.id, each.index)] = record.write_partition(raised)
    return _Change(checks={key: _version(entries, key) for key in puts}, puts=puts)


def first_start() -> dict[str, str]:
    """What the metadata of a new cluster begins with."""
    return {
        record.CLUSTER: record.write_cluster(new_cluster_id()),
        record.PRODUCER_IDS: record.write_producer_ids(_FIRST_PRODUCER_ID),
    }


def _plan_creation(rows: Rows, topic: TopicRecord) -> _Change:
    key = record.name_key(topic.name)
    if key in rows.entries:
        raise BrokerError(f"topic {topic.name!r} exists already", code=ErrorCode.TOPIC_ALREADY_EXISTS)
    texts = record.topic_texts(topic)
    return _Change(
        checks={key: ABSENT, record.deleted_key(topic.id): ABSENT, **dict.fromkeys(texts, ABSENT)},
        puts={key: record.write_name(topic.id), **texts},
    )


def _known(rows: Rows, topic_id: UUID) -> Entry:
    entry = rows.entries.get(record.topic_key(topic_id))
    if entry is None:
        raise BrokerError(f"no topic has the id {topic_id}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    return entry


def _version(entries: Mapping[str, Entry], key: str) -> int:
    return entries[key].version if key in entries else ABSENT


def new_cluster_id() -> str:
    """22 characters, as Kafka's own look."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
