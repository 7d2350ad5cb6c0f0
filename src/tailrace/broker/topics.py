"""The topics of the cluster, as this node knows them, and how they come and go.

One change at a time. A topic is created logs first, record second: what a crash leaves is an empty log that
nobody knows, and a start removes it. It is deleted record first (marked), logs second: a start goes on where
a crash stopped. So a log that the metadata knows and the disk does not is never an accident of ours.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from tailrace.broker.config import BrokerConfig
from tailrace.broker.configs import TopicSettings, check_topic_configs, topic_settings
from tailrace.broker.counters import Counters
from tailrace.broker.partition import Partition
from tailrace.broker.placement import Assignment, check_assignment, plan_placement
from tailrace.broker.ports import MetadataStore, PartitionRecord, TopicRecord
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, PartitionId
from tailrace.runtime import Clock
from tailrace.storage.api import StorageEngine

logger = logging.getLogger(__name__)

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FIRST_EPOCH = Epoch(0)
DEFAULT = -1
"""For a number of partitions or replicas: what the broker is set to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that somebody wants."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Assignment | None = None
    internal: bool = False


class Topic:
    """A topic that exists."""

    __slots__ = ("configs", "id", "internal", "name", "partitions", "settings")

    def __init__(self, record: TopicRecord, settings: TopicSettings, partitions: list[Partition]) -> None:
        self.id = record.id
        self.name = record.name
        self.internal = record.internal
        self.configs: Mapping[str, str] = record.configs  # what differs from the defaults
        self.settings = settings
        self.partitions = partitions

    def __repr__(self) -> str:
        return f"<Topic {self.name} {self.id} with {len(self.partitions)} partitions>"

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


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
    ) -> None:
        self._node_id = node_id
        self._nodes = nodes
        self._storage = storage
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._counters = counters
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._changing = asyncio.Lock()
        self.version = 0  # grows with every change

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Topic]:
        """By name."""
        return iter([topic for _, topic in sorted(self._by_name.items())])

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # ---- changes

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Make a topic; with `validate_only` the one that would be made."""
        async with self._changing:
            return await self._create(new, validate_only=validate_only)

    async def auto_create(self, name: str) -> Topic:
        """The topic, made if need be and allowed."""
        check_name(name)
        if not self._config.auto_create_topics or name.startswith("__"):
            raise unknown_topic(name)
        async with self._changing:
            return self._by_name.get(name) or await self._create(NewTopic(name=name))

    async def delete(self, name: str) -> None:
        async with self._changing:
            topic = self._known(name)
            if topic.internal:
                raise BrokerError(f"{name} is internal and stays", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
            await self._metadata.mark_deleted(topic.id)
            del self._by_name[name], self._by_id[topic.id]
            self.version += 1
            for partition in topic.partitions:
                partition.close()
            await self._remove_logs(topic.id, [partition.index for partition in topic.partitions])
            await self._metadata.forget_topic(topic.id)
        logger.info("topic deleted: %s %s", name, topic.id)

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignments: Assignment | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total` partitions."""
        async with self._changing:
            topic = self._known(name)
            first = len(topic.partitions)
            most = self._config.partitions_max
            if not first < total <= most:
                raise BrokerError(
                    f"{name} has {first} partitions and may have {most}; it cannot be given {total}",
                    code=ErrorCode.INVALID_PARTITIONS,
                )
            records = self._place(name, assignments, first, total - first, topic.replication_factor)
            if validate_only:
                return
            added = [self._partition(topic, record, topic.settings) for record in records]
            await self._create_logs(added)
            await self._metadata.add_partitions(topic.id, records)
            topic.partitions.extend(added)
            self.version += 1

    async def alter_configs(
        self,
        name: str,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic the settings that `plan` makes of its present ones; no other change comes between."""
        async with self._changing:
            topic = self._known(name)
            configs = plan(topic.configs)
            check_topic_configs(configs)
            settings = self._settings(configs)
            if validate_only:
                return
            await self._metadata.set_configs(topic.id, configs)
            topic.configs, topic.settings = dict(configs), settings
            for partition in topic.partitions:
                partition.settings = settings
                if partition.log is not None:
                    self._storage.configure(partition.id, settings.log)

    # ---- the start

    async def load(self, records: Sequence[TopicRecord]) -> None:
        """Serve what the metadata knows, finish deletions, and look for logs that nobody knows."""
        for record in records:
            if record.deleted:
                await self._remove_logs(record.id, [each.index for each in record.partitions])
                await self._metadata.forget_topic(record.id)
                continue
            topic = self._topic(record)
            for partition in topic.partitions:
                await self._open_log(partition)
            self._add(topic)
        await self._look_for_strays()

    async def _open_log(self, partition: Partition) -> None:
        if self._node_id not in partition.replicas:
            return
        log = self._storage.get(partition.id)
        if log is None and not self._storage.durable:
            log = await self._storage.create(partition.id, partition.settings.log)
        if log is None:
            logger.critical("the log of %s is missing: the partition is not served", partition.name)
            return
        self._storage.configure(partition.id, partition.settings.log)
        partition.open(log)

    async def _look_for_strays(self) -> None:
        known = {partition.id for topic in self for partition in topic.partitions}
        for log in self._storage.logs():
            if log.partition_id in known:
                continue
            if log.end_offset == 0:
                await self._storage.delete(log.partition_id)  # its topic never came to be
            else:
                logger.error(
                    "log %s holds offsets %d to %d and belongs to no topic: it is kept and not served",
                    log.partition_id,
                    log.start_offset,
                    log.end_offset,
                )

    # ---- inside

    async def _create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        check_name(new.name)
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
        try:
            await self._metadata.create_topic(record)
        except BaseException:
            await self._remove_logs(topic.id, [partition.index for partition in topic.partitions])
            raise
        self._add(topic)
        logger.info("topic created: %s %s, %d partitions", new.name, topic.id, len(topic.partitions))
        return topic

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
        factor = new.replication_factor
        if factor == DEFAULT:
            factor = min(self._config.replication_factor, len(self._nodes))
        return self._place(new.name, new.assignments, 0, count, factor)

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
        return topic_settings(configs, self._config.values)

    def _topic(self, record: TopicRecord) -> Topic:
        settings = self._settings(record.configs)
        partitions = [self._partition(record, each, settings) for each in record.partitions]
        return Topic(record, settings, partitions)

    def _partition(
        self, topic: Topic | TopicRecord, record: PartitionRecord, settings: TopicSettings
    ) -> Partition:
        return Partition(
            topic.name,
            PartitionId(topic.id, record.index),
            record,
            node_id=self._node_id,
            settings=settings,
            clock=self._clock,
            counters=Counters() if topic.internal else self._counters,  # what users send is what counts
        )

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self.version += 1

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

    async def _remove_logs(self, topic_id: UUID, indexes: Sequence[int]) -> None:
        held = [PartitionId(topic_id, index) for index in indexes]
        await asyncio.gather(
            *(self._storage.delete(each) for each in held if self._storage.get(each) is not None)
        )


def check_name(name: str) -> None:
    """Whether a topic may have this name."""
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise BrokerError(
            f"{name!r} is not a legal topic name: up to 249 of A-Z a-z 0-9 . _ -, and not . or ..",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def unknown_topic(name: str) -> BrokerError:
    return BrokerError(f"topic {name!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
