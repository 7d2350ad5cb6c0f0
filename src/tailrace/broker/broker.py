"""The broker: topics, groups and ids of one node, over a storage engine and a metadata store.

It is free of wire types and sockets; listeners translate. Storage and metadata belong to whoever opened them
and are closed after the broker. Everything runs in one loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any
from uuid import UUID

from tailrace.broker.archive_reach import tell_archive_reach
from tailrace.broker.audit_log import AUDIT_CONFIGS, AUDIT_TOPIC, AuditLog
from tailrace.broker.cluster_view import ClusterView, Node
from tailrace.broker.config import BrokerConfig, cleaner_backoff_ms
from tailrace.broker.counters import Counters
from tailrace.broker.cuts import Cuts
from tailrace.broker.delayed import DELAYED_TOPIC, Delayed
from tailrace.broker.gate import Authorize, Gate, allow_by_acls, allow_standing
from tailrace.broker.group_settings import GroupSettings
from tailrace.broker.groups import OFFSETS_TOPIC, GroupCoordinator
from tailrace.broker.internal.topic import InternalTopic
from tailrace.broker.ports import MetadataStore
from tailrace.broker.producer_ids import ProducerIds
from tailrace.broker.publishing import Publisher
from tailrace.broker.quotas import Quotas, QuotaStore
from tailrace.broker.subscriptions import CURSORS_TOPIC, Subscriptions
from tailrace.broker.topic import Topic
from tailrace.broker.topics import Topics
from tailrace.broker.transactions import TRANSACTIONS_CONFIGS, TRANSACTIONS_TOPIC, TransactionCoordinator
from tailrace.broker.transactions.atomic import AtomicAppender
from tailrace.broker.transactions.pool import IdPool
from tailrace.model import BrokerId, StorageError
from tailrace.model.session import Principal
from tailrace.runtime import Clock, Supervisor
from tailrace.security import DisabledStore, Standing, Tokens, TokenStore, Users, UserStore
from tailrace.security.acl import Acls, AclStore
from tailrace.security.audit import Audit
from tailrace.storage.api import StorageEngine

logger = logging.getLogger(__name__)

_CURSORS_PARTITIONS = 4
_DELAYED_BYTES_MAX = 64 << 20  # of messages that wait, where storage is memory


class Broker:
    """One node's part in serving the topics of the cluster."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        nodes: Mapping[BrokerId, Node],
        storage: StorageEngine,
        metadata: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        user_store: UserStore | None = None,
        disabled_store: DisabledStore | None = None,
        token_store: TokenStore | None = None,
        quota_store: QuotaStore | None = None,
        acl_store: AclStore | None = None,
        super_users: Collection[Principal] | None = None,
        audits: bool = False,
    ) -> None:
        """Without stores, users, principals, API tokens, access control and quotas go with the process.

        With `super_users`, which may be none, access is controlled: all others need entries. `audits` writes
        the audit log.
        """
        self.config = config
        self.clock = clock
        self.storage = storage
        self.counters = Counters()
        self.audit = Audit(clock.now_ms, is_on=audits)
        self.topics = Topics(
            node_id=node_id,
            nodes=list(nodes),
            storage=storage,
            metadata=metadata,
            config=config,
            clock=clock,
            counters=self.counters,
            on_failure=self._fail,
            on_served_again=self._read_again,
        )
        self.cluster = ClusterView(
            node_id=node_id, nodes=nodes, config=config, settings=self.topics.node_settings
        )
        self.groups = GroupCoordinator(
            InternalTopic(self.topics, name=OFFSETS_TOPIC, partitions=config.offsets_partitions),
            clock=clock,
            config=config.groups,
            on_failure=self._fail,
        )
        self.subscriptions = Subscriptions(
            InternalTopic(self.topics, name=CURSORS_TOPIC, partitions=_CURSORS_PARTITIONS),
            self.topics,
            clock=clock,
            storage_is_durable=storage.durable,
            on_failure=self._fail,
        )
        self._producer_ids = ProducerIds(metadata)
        self.transactions = TransactionCoordinator(
            InternalTopic(
                self.topics,
                name=TRANSACTIONS_TOPIC,
                partitions=config.transactions_partitions,
                configs=TRANSACTIONS_CONFIGS,
            ),
            participants=self.topics,
            states={OFFSETS_TOPIC: self.groups, CURSORS_TOPIC: self.subscriptions},
            producer_ids=self._producer_ids,
            clock=clock,
            config=config.transactions,
            on_failure=self._fail,
        )
        self.transaction_ids = IdPool(self.transactions, node_id=node_id, on_failure=self._fail)
        self.atomic = AtomicAppender(self.transactions, self.transaction_ids)
        self.subscriptions.bury_with(self.atomic)
        self.users = Users(user_store, disabled=disabled_store, on_failure=self._fail)
        self.tokens = Tokens(self.users, token_store, now_ms=clock.now_ms, on_failure=self._fail)
        self.quotas = Quotas(quota_store, monotonic=clock.monotonic, on_failure=self._fail)
        self.standing = Standing(self.users, self.tokens, now_ms=clock.now_ms)
        self.acls = Acls(acl_store, on_failure=self._fail)
        self._audit_log = AuditLog(
            self.audit,
            InternalTopic(self.topics, name=AUDIT_TOPIC, partitions=1, configs=AUDIT_CONFIGS),
            on_failure=self._fail,
        )
        self.group_settings = GroupSettings(metadata, on_failure=self._fail)
        self.publisher = Publisher(clock=clock)
        self.delayed = Delayed(
            self.topics,
            self.publisher,
            clock=clock,
            on_failure=self._fail,
            bytes_max=None if storage.durable else _DELAYED_BYTES_MAX,
        )
        self.cuts = Cuts(self.topics, storage, metadata)
        self.access_numbers = itertools.count(1)  # of what the gate gave out: later ones are greater
        self._metadata = metadata
        self._tasks = Supervisor(self._fail)
        self._deletions: set[asyncio.Task[None]] = set()  # of topics, under way
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.gate = Gate(self, authorize=self._rule(super_users))
        self.users.watch(lambda _: self.gate.rights_changed())
        self.users.disabled.watch(lambda _: self.gate.rights_changed())
        self.acls.watch(self.gate.rights_changed)
        self.tokens.watch(lambda _: self.gate.rights_changed())

    def __repr__(self) -> str:
        cluster = self.cluster
        return f"<Broker {cluster.node_id} of cluster {cluster.cluster_id or '?'}, {len(self.topics)} topics>"

    async def start(self) -> None:
        """Serve what the metadata knows, in a new epoch."""
        image = await self._metadata.begin(self.cluster.node_id, check=self.topics.check_image)
        self.cluster.cluster_id = image.cluster_id
        await self.users.load()
        await self.acls.load()
        await self.tokens.load()
        await self.quotas.load()
        await self.topics.load(image)
        self.group_settings.load(image.settings)
        await self.groups.start(topics={topic.name for topic in self.topics})
        self.transactions.start()
        self.transaction_ids.start()
        self.subscriptions.start()
        self.delayed.start()
        self._audit_log.start()
        self._tasks.start("storage", self._watch_storage())
        self._tasks.start("maintenance", self._maintain())
        self._tasks.start("compaction", self._compact())

    async def close(self) -> None:
        """Stop what runs by itself; what is stored stays."""
        await self.cuts.close()
        await self.tokens.close()
        await self.quotas.close()
        await self.users.close()
        await self.acls.close()
        if self._deletions:
            await asyncio.wait(self._deletions)  # each tells its own caller how it went
        await self.delayed.close()
        await self.subscriptions.close()
        await self.transaction_ids.close()
        await self.transactions.close()
        await self.groups.close()
        await self.group_settings.close()
        await self._audit_log.close()
        await self.topics.close()
        await self._tasks.stop()
        for topic in self.topics:
            for partition in topic.partitions:
                partition.close()

    async def wait_failed(self) -> Exception:
        """Return what ended this broker, once something did."""
        return await asyncio.shield(self._failure)

    def run_beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run work of the node's until the broker closes; a failure of it ends the broker."""
        self._tasks.start(name, work)

    async def delete_topic(self, name: str, *, topic_id: UUID | None = None) -> None:
        """Remove a topic, the offsets that groups committed for it, and its subscriptions.

        With `topic_id` only the topic of this id is meant, and not one that has got its name since. A caller
        who is cancelled leaves it running: offsets that stayed would be those of the next topic of that name.
        """
        work = self._delete_topic(name, topic_id)
        task = asyncio.get_running_loop().create_task(work, name="topic-deletion")
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)
        await asyncio.shield(task)

    async def next_producer_id(self) -> int:
        """An id that no producer had before."""
        try:
            return await self._producer_ids.take()
        except StorageError as error:
            self._fail(error)
            raise

    # ---- inside

    def _rule(self, super_users: Collection[Principal] | None) -> Authorize:
        """Who may do what, on every listener."""
        logged_in = allow_standing(self.standing)
        if super_users is None:
            return logged_in
        return allow_by_acls(self.acls, super_users=super_users, among=logged_in)

    def _read_again(self, topic: Topic) -> None:
        """A topic is served again: read the state of the broker's own that could not be read at the start."""
        if topic.name == OFFSETS_TOPIC:
            self.groups.read_again(topics={each.name for each in self.topics})
        elif topic.name == TRANSACTIONS_TOPIC:
            self.transactions.read_again()
        elif topic.name == CURSORS_TOPIC:
            self.subscriptions.read_again()
        elif topic.name == DELAYED_TOPIC:
            self.delayed.read_again()

    async def _delete_topic(self, name: str, topic_id: UUID | None) -> None:
        await self.topics.delete(name, topic_id=topic_id)
        await self.groups.topic_deleted(name)
        await self.subscriptions.topic_deleted(name)

    async def _watch_storage(self) -> None:
        raise await self.storage.wait_failed()

    async def _maintain(self) -> None:
        """Retention and what else is due now and then, for ever."""
        while True:
            await asyncio.sleep(self.config.maintenance_interval_ms / 1000)
            tell_archive_reach(self.topics, self.groups)
            await self.storage.maintain()

    async def _compact(self) -> None:
        """Look for logs to compact, for ever."""
        while True:
            await asyncio.sleep(cleaner_backoff_ms(self.cluster.settings) / 1000)
            await self.storage.compact()

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            logger.critical("broker failed: %s", error, exc_info=error)
            failure = error if isinstance(error, Exception) else RuntimeError(str(error))
            self.cluster.failure = failure
            self._failure.set_result(failure)
