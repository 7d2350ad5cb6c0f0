"""The topics of the cluster, as this node knows them, and how they come and go.

One change at a time, and each to its end, also where whoever wanted it has stopped waiting. A topic is
created logs first, record second: what a crash leaves is an empty log that no record names, and a start
removes it. It is deleted record first (marked), logs second: a start goes on where a crash stopped. So a log
that the metadata knows and the disk does not is never an accident of ours, and neither is a log with records
that the metadata does not know: the metadata is lost, old or another cluster's, and the start is refused.

A topic whose stored settings cannot be used is quarantined: it keeps its name and every record, and is not
served until its settings are mended. To go by defaults instead could delete what it was set to keep.

A StorageError in the middle of a change ends the broker: nobody knows whether the record was stored, and what
is served must be what a start would find.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from tailrace.broker.config import BrokerConfig
from tailrace.broker.configs import (
    ConfigSource,
    NodeSettings,
    TopicSettings,
    check_changed_configs,
    check_topic_configs,
    topic_settings,
)
from tailrace.broker.counters import Counters, TopicCounters
from tailrace.broker.partition import Partition
from tailrace.broker.placement import Assignment, check_assignment, plan_placement
from tailrace.broker.ports import MetadataImage, MetadataStore, PartitionRecord, TopicRecord
from tailrace.broker.stored_logs import KEEP_EVERYTHING, check_logs
from tailrace.broker.topic import (
    CLIENT_WRITTEN,
    DEFAULT,
    NewTopic,
    Topic,
    check_client_written,
    check_name,
    check_not_reserved,
    unknown_topic,
    unknown_topic_id,
)
from tailrace.broker.waiters import Waiters
from tailrace.model import (
    BrokerError,
    BrokerId,
    Epoch,
    ErrorCode,
    PartitionId,
    StorageError,
    TopicPartition,
)
from tailrace.runtime import Clock
from tailrace.storage.api import StorageEngine

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_EPOCH = Epoch(0)


class Topics:
    """The topics by name and by id, and the only one who changes them."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        nodes: Sequence[BrokerId],
        storage: StorageEngine,
        metadata: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        counters: Counters,
        on_failure: Callable[[BaseException], None],
        on_served_again: Callable[[Topic], None] = lambda _: None,
    ) -> None:
        """`on_served_again` is called when a topic is no longer quarantined."""
        self._node_id = node_id
        self._nodes = nodes
        self._storage = storage
        self._metadata = metadata
        self._config = config
        self.node_settings = NodeSettings(config.values)
        self._clock = clock
        self._counters = counters
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._on_failure = on_failure
        self._on_served_again = on_served_again
        self._cluster_id = ""
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()  # under way, or waiting for their turn
        self.version = 0  # grows with every change of topics, and of who may use them
        self.waiters = Waiters()  # who wants to be called after every change

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Topic]:
        """By name."""
        return iter([topic for _, topic in sorted(self._by_name.items())])

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find_partition(self, tp: TopicPartition) -> Partition | None:
        """A partition of a topic that exists, on whichever node it is led."""
        topic = self._by_name.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        return (partition for topic in self for partition in topic.partitions)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # ---- changes

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Make a topic; with `validate_only` the one that would be made."""
        return await self._change(self._create(new, validate_only=validate_only))

    async def ensure(self, new: NewTopic) -> Topic:
        """The topic of this name, created as `new` if there is none."""
        known = self._by_name.get(new.name)
        return await self._change(self._get_or_create(new)) if known is None else known

    async def auto_create(self, new: NewTopic) -> Topic:
        """The same for a client that only used the name; UNKNOWN_TOPIC_OR_PARTITION if that creates nothing.

        A node may be set to create no topics by name. Names that begin with __ are never created this way:
        a typing error must not make a topic that looks like the broker's own.
        """
        check_name(new.name)
        if not self._config.auto_create_topics or new.name.startswith("__"):
            raise unknown_topic(new.name)
        return await self.ensure(new)

    async def delete(self, name: str, *, topic_id: UUID | None = None) -> None:
        """Remove a topic, only the one of this id if one is given; who reads or writes it is told."""
        await self._change(self._delete(name, topic_id))

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignments: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total` partitions."""
        await self._change(self._add_partitions(name, total, assignments, validate_only=validate_only))

    async def alter_configs(
        self,
        name: str,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic the settings that `plan` makes of its present ones; no other change comes between."""
        await self._change(self._alter_configs(name, plan, validate_only=validate_only))

    async def alter_node(
        self,
        source: ConfigSource,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """The same for the settings of this node or of all nodes; topics without their own go by them."""
        await self._change(self._alter_node(source, plan, validate_only=validate_only))

    async def unchanged(self, work: Coroutine[Any, Any, _T]) -> _T:
        """What `work` returns, done while no topic changes. Its errors are the caller's."""
        try:
            await self._changing.acquire()
        except BaseException:
            work.close()
            raise
        try:
            return await work
        finally:
            self._changing.release()

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    # ---- the start

    def check_image(self, image: MetadataImage) -> None:
        """Raise StorageError unless the image can be that of the logs here; changes nothing."""
        check_logs(image, self._storage.logs(), data_dir=self._config.values.get("log.dirs", ""))

    async def load(self, image: MetadataImage) -> None:
        """Serve what the metadata knows, finish deletions, and remove logs whose topic never came to be."""
        self._cluster_id = image.cluster_id
        self._load_settings(image.settings)
        for record in image.topics:
            if record.deleted:
                await self._remove_logs(record.id, record.partitions)
                await self._metadata.forget_topic(record.id)
                continue
            topic = self._loaded(record)
            if not topic.quarantine:
                for partition in topic.partitions:
                    await self._open_log(partition)
            self._add(topic)
        await self._remove_strays()

    def _loaded(self, record: TopicRecord) -> Topic:
        try:
            check_topic_configs(record.configs)
            return self._topic(record)
        except BrokerError as error:
            topic = self._topic(replace(record, configs={}))
            topic.configs = record.configs
            self._quarantine(topic, str(error))
            return topic

    def _quarantine(self, topic: Topic, reason: str) -> None:
        topic.quarantine = (
            f"topic {topic.name} is quarantined, because of its stored settings: {reason}. Nothing of it is "
            f"served or removed. Set it right, or back to the default: tailrace topic alter {topic.name} "
            "--reset KEY"
        )
        logger.error("%s", topic.quarantine)
        for partition in topic.partitions:
            partition.withheld = topic.quarantine
            if self._storage.get(partition.id) is not None:
                self._storage.configure(partition.id, KEEP_EVERYTHING)
                self._label(partition)

    def _load_settings(self, kept: Mapping[str, Mapping[str, str]]) -> None:
        """Take over what clients changed of this node before; what is not accepted any more is left out."""
        for source in (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER):
            settings = {}
            for name, text in kept.get(self._owner(source), {}).items():
                try:
                    check_changed_configs({name: text})
                except BrokerError as error:
                    logger.warning("kept setting of the node is left out: %s = %s: %s", name, text, error)
                else:
                    settings[name] = text
            self.node_settings.change(source, settings)

    async def _open_log(self, partition: Partition) -> None:
        if self._node_id not in partition.replicas:
            return
        log = self._storage.get(partition.id)
        if log is None and not self._storage.durable:
            log = await self._storage.create(partition.id, partition.settings.log)
        if log is None:
            partition.withheld = f"the log of {partition.name} is missing: the partition is not served"
            logger.critical("%s", partition.withheld)
            return
        self._storage.configure(partition.id, partition.settings.log)
        partition.open(log)
        self._label(partition)

    def _label(self, partition: Partition) -> None:
        self._storage.label(partition.id, cluster_id=self._cluster_id, topic=partition.topic)

    async def _remove_strays(self) -> None:
        """Remove empty logs that no topic has: `check_image` refused all others."""
        known = {partition.id for topic in self for partition in topic.partitions}
        for log in self._storage.logs():
            if log.partition_id not in known and log.end_offset == 0:
                await self._storage.delete(log.partition_id)

    # ---- the changes themselves, one at a time

    async def _change(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it when its turn has come. A caller who is cancelled leaves it running, never half done."""
        task = asyncio.get_running_loop().create_task(self._alone(work), name="topic-change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _alone(self, work: Coroutine[Any, Any, _T]) -> _T:
        async with self._changing:
            try:
                return await work
            except StorageError as error:
                self._on_failure(error)
                raise

    async def _create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        check_name(new.name)
        if not new.internal:
            check_not_reserved(new.name)
        if new.name in CLIENT_WRITTEN:
            check_client_written(new)
            new = replace(new, internal=True)
        check_topic_configs(new.configs)
        if new.name in self._by_name:
            raise BrokerError(f"topic {new.name!r} exists already", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        record = TopicRecord(
            id=uuid4(),
            name=new.name,
            partitions=tuple(self._first_partitions(new)),
            configs=dict(new.configs),
            internal=new.internal,
        )
        topic = self._topic(record)
        if validate_only:
            return topic
        await self._create_logs(topic.partitions)
        await self._store(self._metadata.create_topic(record), topic.id, topic.partitions)
        self._add(topic)
        logger.info("topic created: %s %s, %d partitions", new.name, topic.id, len(topic.partitions))
        return topic

    async def _get_or_create(self, new: NewTopic) -> Topic:
        known = self._by_name.get(new.name)
        return await self._create(new) if known is None else known

    async def _delete(self, name: str, topic_id: UUID | None) -> None:
        if topic_id is not None and topic_id not in self._by_id:  # whoever else has the name by now
            raise unknown_topic_id(topic_id)
        topic = self._known(name)
        if topic.internal and name not in CLIENT_WRITTEN:
            raise BrokerError(f"{name} is internal and stays", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        _check_served(topic)
        await self._metadata.mark_deleted(topic.id)
        del self._by_name[name], self._by_id[topic.id]
        self._counters.close(topic.id)
        self._changed()
        for partition in topic.partitions:
            partition.close()
        try:
            await self._remove_logs(topic.id, topic.partitions)
            await self._metadata.forget_topic(topic.id)
        except BrokerError as error:
            # It is gone for everybody; the next start sees to the rest.
            logger.warning("deleted topic is not cleared away yet: %s %s: %s", name, topic.id, error)
        logger.info("topic deleted: %s %s", name, topic.id)

    async def _add_partitions(
        self, name: str, total: int, assignments: Assignment | None, *, validate_only: bool
    ) -> None:
        topic = self._known(name)
        _check_served(topic)
        first = len(topic.partitions)
        most = self._config.partitions_max
        if not first < total <= most:
            raise BrokerError(
                f"{name} has {first} partitions and may have {most}; it cannot be given {total}",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        self._check_room(total - first)
        records = self._place(name, assignments, first, total - first, topic.replication_factor)
        if validate_only:
            return
        added = [self._partition(topic, record, topic.settings, topic.counters) for record in records]
        await self._create_logs(added)
        await self._store(self._metadata.add_partitions(topic.id, records), topic.id, added)
        topic.partitions.extend(added)
        self._changed()

    async def _alter_configs(
        self, name: str, plan: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        topic = self._known(name)
        configs = plan(topic.configs)
        check_topic_configs(configs)
        settings = self._settings(configs)
        if validate_only:
            return
        await self._metadata.set_configs(topic.id, configs)
        topic.configs = dict(configs)
        await self._put_in_force(topic, settings)

    async def _alter_node(
        self,
        source: ConfigSource,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        settings = plan(self.node_settings.layers[source])
        check_changed_configs(settings)
        if validate_only:
            return
        await self._metadata.set_settings(self._owner(source), settings)
        self.node_settings.change(source, settings)
        for topic in self:
            if not topic.quarantine:  # a quarantined one waits for good settings of its own
                await self._put_in_force(topic, self._settings(topic.configs))

    async def _put_in_force(self, topic: Topic, settings: TopicSettings) -> None:
        topic.settings = settings
        for partition in topic.partitions:
            partition.settings = settings
            if topic.quarantine:
                await self._open_log(partition)
            elif partition.is_held_here:
                self._storage.configure(partition.id, settings.log)
        if topic.quarantine:
            logger.info("topic is served again: %s %s", topic.name, topic.id)
            topic.quarantine = ""
            self._changed()
            self._on_served_again(topic)

    def _owner(self, source: ConfigSource) -> str:
        """Under which name the changed settings of this node, or of all nodes, are kept."""
        return f"broker/{self._node_id if source is ConfigSource.DYNAMIC_BROKER else ''}"

    async def _store(
        self, storing: Coroutine[Any, Any, None], topic_id: UUID, partitions: Sequence[Partition]
    ) -> None:
        """Store the record of new partitions; a store that refused it wants their logs gone.

        After a StorageError they stay: it may have been stored all the same, and then a start needs them.
        """
        try:
            await storing
        except BrokerError:
            await self._remove_logs(topic_id, partitions)
            raise

    # ---- inside

    def _first_partitions(self, new: NewTopic) -> list[PartitionRecord]:
        if new.assignments is not None and (new.partitions, new.replication_factor) != (DEFAULT, DEFAULT):
            raise BrokerError(
                "with assignments, the numbers of partitions and replicas must be -1",
                code=ErrorCode.INVALID_REQUEST,
            )
        count = self._config.num_partitions if new.partitions == DEFAULT else new.partitions
        if not 1 <= count <= self._config.partitions_max:
            raise BrokerError(
                f"{count} partitions is not between 1 and {self._config.partitions_max}",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        if not new.internal:  # groups must not be lost to a crowd of topics
            self._check_room(count if new.assignments is None else len(new.assignments))
        factor = new.replication_factor
        if factor == DEFAULT:
            factor = min(self._config.replication_factor, len(self._nodes))
        return self._place(new.name, new.assignments, 0, count, factor)

    def _check_room(self, wanted: int) -> None:
        """Every partition costs memory and files, and a client makes topics by asking for them."""
        known = sum(len(topic.partitions) for topic in self._by_name.values() if not topic.internal)
        most = self._config.partitions_total_max
        if known + wanted > most:
            raise BrokerError(
                f"{known} partitions exist and {wanted} more would be over {most}. Delete topics that nobody "
                "needs, or raise max.partitions",
                code=ErrorCode.POLICY_VIOLATION,
            )

    def _place(
        self, name: str, assignments: Assignment | None, first: int, count: int, factor: int
    ) -> list[PartitionRecord]:
        if assignments is None:
            assignments = plan_placement(
                name, self._nodes, first=first, count=count, replication_factor=factor
            )
        else:
            check_assignment(assignments, self._nodes, first=first)
        return [
            PartitionRecord(
                index=index,
                leader=replicas[0],
                leader_epoch=_FIRST_EPOCH,
                replicas=tuple(replicas),
                isr=tuple(replicas),
            )
            for index, replicas in sorted(assignments.items())
        ]

    def _settings(self, configs: Mapping[str, str]) -> TopicSettings:
        return topic_settings(configs, self.node_settings)

    def _topic(self, record: TopicRecord) -> Topic:
        settings = self._settings(record.configs)
        counters = TopicCounters()
        partitions = [self._partition(record, each, settings, counters) for each in record.partitions]
        return Topic(record, settings, partitions, counters)

    def _partition(
        self,
        topic: Topic | TopicRecord,
        record: PartitionRecord,
        settings: TopicSettings,
        counters: TopicCounters,
    ) -> Partition:
        return Partition(
            topic.name,
            PartitionId(topic.id, record.index),
            record,
            node_id=self._node_id,
            settings=settings,
            clock=self._clock,
            counters=counters,
        )

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        if not topic.internal:  # what users send is what counts
            self._counters.open(topic.id, topic.counters)
        self._changed()

    def rights_changed(self) -> None:
        """Who may use topics has changed: what listeners keep by `version` counts no more."""
        self.version += 1

    def _changed(self) -> None:
        self.version += 1
        self.waiters.wake()

    def _known(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise unknown_topic(name)
        return topic

    async def _create_logs(self, partitions: Sequence[Partition]) -> None:
        """The logs that this node holds, all of them or none."""
        here = [partition for partition in partitions if self._node_id in partition.replicas]
        results = await asyncio.gather(
            *(self._storage.create(partition.id, partition.settings.log) for partition in here),
            return_exceptions=True,
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            for partition, result in zip(here, results, strict=True):
                if not isinstance(result, BaseException):
                    await self._storage.delete(partition.id)
            raise failed[0]
        for partition, log in zip(here, results, strict=True):
            assert not isinstance(log, BaseException)
            partition.open(log)
            self._label(partition)

    async def _remove_logs(self, topic_id: UUID, partitions: Sequence[Partition | PartitionRecord]) -> None:
        held = [PartitionId(topic_id, partition.index) for partition in partitions]
        await asyncio.gather(
            *(self._storage.delete(each) for each in held if self._storage.get(each) is not None)
        )


def _check_served(topic: Topic) -> None:
    if topic.quarantine:
        raise BrokerError(topic.quarantine, code=ErrorCode.POLICY_VIOLATION)
