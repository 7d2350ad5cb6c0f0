"""The gate: the one way from a listener to the broker's objects.

    Gate.access(session) -> Access          once per connection (HTTP: per request)
    Access.readable(tp), .topic(name, operation), ...   finds the object, or raises the one error for it

`Access` answers four questions, each in one place: does the object exist, may a client touch it (reserved
names), may this session do that to it (`Authorize`), and does this node lead it. What it returns may be used
for one request; the next request asks again. That is cheap: partitions that were admitted are kept per access
until a topic or a right changes (`Topics.version`), so the hot path is one comparison and one look-up. What
lasts (live tails, long polls, members that are pushed messages) asks again when `Access.version` changes.

Nothing behind the gate knows sessions. Nothing in front of it has the broker.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tailrace.broker.audit_log import AUDIT_TOPIC, check_kept
from tailrace.broker.audited_acls import AuditedAcls
from tailrace.broker.cluster_view import ClusterView, Node
from tailrace.broker.configs import ConfigSource, NodeSettings
from tailrace.broker.cuts import Cuts
from tailrace.broker.group_settings import check_named
from tailrace.broker.groups.api import GroupListing
from tailrace.broker.groups.handle import GroupHandle
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.owned_tokens import OwnedTokens
from tailrace.broker.partition import Partition
from tailrace.broker.placement import Assignment
from tailrace.broker.publishing import NewMessage
from tailrace.broker.quotas import Quotas
from tailrace.broker.sequence import NO_SEQUENCE, Sequenced
from tailrace.broker.subscriptions.definition import Start, SubscriptionConfig
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.broker.topic import (
    NewTopic,
    Topic,
    check_client_writable,
    check_name,
    check_records_deletable,
    unknown_partition,
    unknown_topic,
    unknown_topic_id,
)
from tailrace.broker.transactions.api import Identity, TransactionDescription
from tailrace.broker.transactions.atomic import Write
from tailrace.broker.transactions.handle import TransactionHandle
from tailrace.broker.transactions.hanging import HangingTransaction
from tailrace.broker.transactions.limits import RESERVED_PREFIX, check_client_id, check_pooled_id
from tailrace.broker.transactions.pool import Pooled
from tailrace.broker.transactions.topic import TRANSACTIONS_TOPIC
from tailrace.broker.waiters import Callback
from tailrace.model import NO_PRODUCER, BrokerError, BrokerId, ErrorCode, TopicPartition
from tailrace.model.operation import CLUSTER, Operation, Resource, ResourceKind
from tailrace.model.session import EMBEDDED, INTERNAL, Principal, Session
from tailrace.security.audit import Change

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.security import Standing, Users
    from tailrace.security.acl import Acls

Authorize = Callable[[Session, Operation, Resource], bool]
"""Whether a session may do something to a resource. Answers at once, without I/O."""

_ADMITTED_MAX = 4096  # partitions that one access keeps; a client that uses more has them looked up again

_REFUSALS = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceKind.SUBSCRIPTION: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}


def granting_command(principal: Principal, operation: Operation, resource: Resource) -> str:
    """The command by which an administrator allows a principal to do something."""
    kind = resource.kind.name.lower().replace("_", "-")
    words = ["tailrace", "acl", "add", "--allow", str(principal), "--operation", operation.name.lower()]
    words += ["--cluster"] if resource.kind is ResourceKind.CLUSTER else [f"--{kind}", resource.name]
    return shlex.join(words)


def allow_everything(session: Session, operation: Operation, resource: Resource) -> bool:  # noqa: ARG001
    """The rule of a broker without access control."""
    return True


def allow_standing(standing: Standing) -> Authorize:
    """The rule of a broker without access control: a login must still hold, and the scope of a token does."""

    def allows(session: Session, operation: Operation, resource: Resource) -> bool:
        if session.scope is not None and not session.scope.allows(operation, resource):
            return False
        return standing.holds(session)

    return allows


def allow_by_acls(acls: Acls, *, super_users: Collection[Principal], among: Authorize) -> Authorize:
    """The rule of a broker with access control: what both `among` and the access control entries allow.

    Super users need no entry. The broker's own work, and the program that it runs in, need nothing.
    """
    powerful = frozenset(super_users)

    def allows(session: Session, operation: Operation, resource: Resource) -> bool:
        # By identity: a listener may have any name, and one that is called "internal" is still a listener.
        if session is INTERNAL or session is EMBEDDED:
            return True
        if not among(session, operation, resource):
            return False
        principal = session.principal
        return principal in powerful or acls.allows(principal, session.host, operation, resource)

    return allows


class Gate:
    """What the listeners of one node are given of its broker.

    Beside access it has what is nobody's property: the clock, the counters of the node, and the publisher,
    which works on the partitions that an access gave out.
    """

    __slots__ = ("_authorize", "_broker", "clock", "counters", "publisher")

    def __init__(self, broker: Broker, *, authorize: Authorize = allow_everything) -> None:
        self.clock = broker.clock
        self.counters = broker.counters
        self.publisher = broker.publisher
        self._broker = broker
        self._authorize = authorize

    def __repr__(self) -> str:
        return f"<Gate of {self._broker}>"

    @property
    def commit_round_s(self) -> float:
        """About how long the log takes now to make a round of appends durable; 0.0 in memory."""
        return self._broker.storage.counters.round_s

    def access(self, session: Session) -> Access:
        """What this session may use."""
        return Access(self._broker, session, self._authorize)

    def rights_changed(self) -> None:
        """`authorize` may answer otherwise from now on: what was admitted before is asked for again."""
        self._broker.topics.rights_changed()


Plan = Callable[[Mapping[str, str]], Mapping[str, str]]
"""The settings that something gets, out of those that it has."""


def _plan_audit_topic(plan: Plan) -> Plan:
    """The plan of a client for the settings of the audit topic, within what may be changed of it."""

    def checked(before: Mapping[str, str]) -> Mapping[str, str]:
        after = plan(before)
        check_kept(before, after)
        return after

    return checked


class Access:
    """The broker's objects, as one session may use them."""

    __slots__ = (
        "_acls",
        "_atomic",
        "_audit",
        "_authorize",
        "_cluster",
        "_cuts",
        "_delayed",
        "_delete_topic",
        "_group_settings",
        "_groups",
        "_next_producer_id",
        "_quotas",
        "_read_subscriptions",
        "_readable",
        "_subscriptions",
        "_tokens",
        "_topics",
        "_transaction_ids",
        "_transactions",
        "_users",
        "_version",
        "_writable",
        "_writable_topics",
        "number",
        "session",
    )

    def __init__(self, broker: Broker, session: Session, authorize: Authorize) -> None:
        self.session = session
        self.number = next(broker.access_numbers)
        """Greater than that of every access which was given out before."""
        self._authorize = authorize
        self._audit = broker.audit
        self._topics = broker.topics
        self._groups = broker.groups
        self._transactions = broker.transactions
        self._transaction_ids = broker.transaction_ids
        self._atomic = broker.atomic
        self._group_settings = broker.group_settings
        self._subscriptions = broker.subscriptions
        self._delayed = broker.delayed
        self._cluster = broker.cluster
        self._cuts = broker.cuts
        self._users = broker.users
        self._quotas = broker.quotas
        self._acls = broker.acls
        self._tokens = broker.tokens
        self._delete_topic = broker.delete_topic
        self._next_producer_id = broker.next_producer_id
        self._version = broker.topics.version
        self._readable: dict[TopicPartition, Partition] = {}
        self._writable: dict[TopicPartition, Partition] = {}
        self._writable_topics: dict[str, Topic] = {}
        self._read_subscriptions: dict[str, Subscription] = {}

    def __repr__(self) -> str:
        return f"<Access of {self.session}>"

    @property
    def version(self) -> int:
        """Changes when a topic or a right does: what is used for long is then asked for again."""
        return self._topics.version

    @property
    def audience(self) -> Hashable:
        """What decides beside `version` what this session may see: equal ones may share an answer."""
        session = self.session
        return session.principal, session.host, session.mechanism, session.scope

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether this session may do this to a resource, which need not exist."""
        return self._authorize(self.session, operation, resource)

    def changing(self, what: str, resource: str) -> Change:
        """`with access.changing("user.create", "user 'alice'"): ...` puts a change into the audit log.

        For changes that a caller makes on what it was given here, such as users; the gate's own are in it.
        """
        return self._audit.changing(self.session, what, resource)

    # ---- partitions

    def readable(self, tp: TopicPartition) -> Partition:
        """The partition, for reading its records."""
        if self._version != self._topics.version:
            self._forget()
        found = self._readable.get(tp)
        return self._admit(tp, Operation.READ, self._readable) if found is None else found

    def readable_by_replica(self, tp: TopicPartition) -> Partition:
        """The partition, for a caller that says that it is another node: CLUSTER_ACTION and READ."""
        if not self.allows(Operation.CLUSTER_ACTION, CLUSTER):
            raise BrokerError(
                str(self._refusal(Operation.CLUSTER_ACTION, CLUSTER)),
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        return self.readable(tp)

    def writable(self, tp: TopicPartition) -> Partition:
        """The partition, for appending to it."""
        if self._version != self._topics.version:
            self._forget()
        found = self._writable.get(tp)
        if found is not None:
            return found
        check_client_writable(tp.topic)
        return self._admit(tp, Operation.WRITE, self._writable)

    def partition(self, tp: TopicPartition, operation: Operation) -> Partition:
        """The partition, for what is asked now and then.

        UNKNOWN_TOPIC_OR_PARTITION for an illegal name too: Kafka answers so in Produce, Fetch, ListOffsets,
        OffsetForLeaderEpoch and DeleteRecords, of every version. INVALID_TOPIC_EXCEPTION is for requests that
        ask for topics (`topic`), as Metadata does.
        """
        self._check(operation, Resource(ResourceKind.TOPIC, tp.topic))
        return self._existing(tp)

    async def delete_records(self, tp: TopicPartition, before: int) -> int:
        """Have a partition forget what lies below an offset; returns its first offset then."""
        check_records_deletable(self.topic(tp.topic, Operation.DELETE))
        found = self.partition(tp, Operation.DELETE)
        with self.changing("records.delete", f"partition {tp} before {before}"):
            return await found.delete_records(before)

    # ---- topics

    def topic(self, name: str, operation: Operation) -> Topic:
        """The topic; UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION where no topic could exist."""
        self._check(operation, Resource(ResourceKind.TOPIC, name))
        found = self._topics.get(name)
        if found is None:
            check_name(name)
            raise unknown_topic(name)
        return found

    def topic_by_id(self, topic_id: UUID, operation: Operation) -> Topic:
        """The topic of this id; UNKNOWN_TOPIC_ID, also where the session may not know that it exists."""
        found = self._topics.by_id(topic_id)
        if found is None:
            raise unknown_topic_id(topic_id)
        resource = Resource(ResourceKind.TOPIC, found.name)
        if not self.allows(operation, resource):
            if not self.allows(Operation.DESCRIBE, resource):
                raise unknown_topic_id(topic_id)
            raise self._refusal(operation, resource)
        return found

    def still_exists(self, topic: Topic) -> bool:
        """Whether a topic that was given out exists; a later topic of the same name is another topic."""
        return self._topics.by_id(topic.id) is topic

    def topics(self, operation: Operation) -> list[Topic]:
        """Every topic that this session may do this to, by name."""
        return [
            topic
            for topic in self._topics
            if self.allows(operation, Resource(ResourceKind.TOPIC, topic.name))
        ]

    def writable_topic_nowait(self, name: str) -> Topic | None:
        """The topic, for appending to its partitions; None if it does not exist."""
        if self._version != self._topics.version:
            self._forget()
        found = self._writable_topics.get(name)
        if found is None:
            check_client_writable(name)
            self._check(Operation.WRITE, Resource(ResourceKind.TOPIC, name))
            found = self._topics.get(name)
            if found is not None:
                self._writable_topics[name] = found
        return found

    def creatable_topics(self, names: Iterable[str]) -> list[str]:
        """Those of the names that no topic has; none where the node does not create topics by name."""
        if not self._cluster.config.auto_create_topics:
            return []
        return [
            name
            for name in names
            if self._topics.get(name) is None
            and self.allows(Operation.DESCRIBE, Resource(ResourceKind.TOPIC, name))
        ]

    async def writable_topic(self, new: NewTopic) -> Topic:
        """The topic of this name, for appending to its partitions; created as `new` if it does not exist.

        UNKNOWN_TOPIC_OR_PARTITION where the node does not create topics by being asked for them.
        """
        found = self.writable_topic_nowait(new.name)
        return await self.auto_create_topic(new) if found is None else found

    async def auto_create_topic(self, new: NewTopic) -> Topic:
        """The topic of this name, created as `new` if it does not exist and the node does that."""
        self._check_creation(new.name)
        is_new = self._topics.get(new.name) is None
        made = await self._topics.auto_create(new)
        if is_new:
            self.changing("topic.create", str(Resource(ResourceKind.TOPIC, new.name))).done()
        return made

    async def ensure_topic(self, new: NewTopic) -> Topic:
        """The topic of this name, created as `new` if it does not exist.

        A session that may do neither is refused alike whether the topic exists or not.
        """
        found = self._topics.get(new.name)
        if found is None or not self.allows(Operation.DESCRIBE, Resource(ResourceKind.TOPIC, new.name)):
            self._check_creation(new.name)
        if found is not None:
            self._check(Operation.DESCRIBE, Resource(ResourceKind.TOPIC, new.name))
            return found
        with self._changing_topic("topic.create", new.name):
            return await self._topics.ensure(new)

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Create a topic; with `validate_only` the one that would be created."""
        self._check_creation(new.name)
        if validate_only:
            return await self._topics.create(new, validate_only=True)
        with self._changing_topic("topic.create", new.name):
            return await self._topics.create(new)

    async def delete_topic(self, name: str, *, topic_id: UUID | None = None) -> None:
        """Remove a topic, only the one of this id if one is given."""
        self._check(Operation.DELETE, Resource(ResourceKind.TOPIC, name))
        with self._changing_topic("topic.delete", name):
            await self._delete_topic(name, topic_id=topic_id)

    async def add_partitions(
        self, name: str, total: int, *, assignments: Assignment | None = None, validate_only: bool = False
    ) -> None:
        """Grow a topic to `total` partitions; INVALID_TOPIC_EXCEPTION for an internal one."""
        if self.topic(name, Operation.ALTER).internal:
            raise BrokerError(
                f"{name} is internal and stays as it is", code=ErrorCode.INVALID_TOPIC_EXCEPTION
            )
        grow = partial(self._topics.add_partitions, name, total, assignments=assignments)
        if validate_only:
            await grow(validate_only=True)
            return
        with self._changing_topic("topic.partitions", name):
            await grow()

    async def alter_topic(
        self,
        name: str,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic the settings that `plan` makes of its present ones."""
        self.topic(name, Operation.ALTER_CONFIGS)
        plan = _plan_audit_topic(plan) if name == AUDIT_TOPIC else plan
        if validate_only:
            await self._topics.alter_configs(name, plan, validate_only=True)
            return
        with self._changing_topic("topic.configs", name):
            await self._topics.alter_configs(name, plan)

    async def alter_node(
        self,
        source: ConfigSource,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give this node, or all nodes, the settings that `plan` makes of those that clients gave before."""
        self._check(Operation.ALTER_CONFIGS, CLUSTER)
        if validate_only:
            await self._topics.alter_node(source, plan, validate_only=True)
            return
        with self.changing("node.configs", str(CLUSTER)):
            await self._topics.alter_node(source, plan)

    @property
    def topic_defaults(self) -> NodeSettings:
        """The node's settings, which topics without their own go by; told to every session with a topic."""
        return self._cluster.settings

    def watch_topics(self, callback: Callback) -> None:
        """Have `callback` called after every change of a topic, until `unwatch_topics`."""
        self._topics.waiters.add(callback)

    def unwatch_topics(self, callback: Callback) -> None:
        self._topics.waiters.discard(callback)

    # ---- producers and delayed messages

    async def next_producer_id(self) -> int:
        """An id that no producer had before."""
        self._check(Operation.IDEMPOTENT_WRITE, CLUSTER)
        return await self._next_producer_id()

    def due_ms(self, message: NewMessage, now_ms: int) -> int | None:
        """When a message is due, if that lies ahead; INVALID_REQUEST for nonsense."""
        return self._delayed.is_delayed(message, now_ms)

    async def delay(
        self,
        topic: Topic,
        partition: int | None,
        message: NewMessage,
        due_ms: int,
        *,
        producer_id: int = NO_PRODUCER,
        sequence: int = NO_SEQUENCE,
    ) -> str:
        """Keep a message until it is due; returns its id once it is durable. `topic` is a writable one."""
        return await self._delayed.put(
            topic.name, partition, message, due_ms, producer_id=producer_id, sequence=sequence
        )

    # ---- groups

    def group(self, group_id: str, operation: Operation) -> GroupHandle:
        """The group, whether or not it exists yet."""
        self._check(operation, Resource(ResourceKind.GROUP, group_id))
        return GroupHandle(self._groups, group_id, changing=self.changing)

    def groups(self, operation: Operation, *, states: Sequence[str] = ()) -> list[GroupListing]:
        """The groups of this node that this session may do this to; with `states`, those in one of them.

        Who may describe the cluster is told the names of all groups, as in Kafka.
        """
        found = self._groups.list_groups(states=states)
        if operation is Operation.DESCRIBE and self.allows(Operation.DESCRIBE, CLUSTER):
            return found
        return [each for each in found if self.allows(operation, Resource(ResourceKind.GROUP, each.group_id))]

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """The settings that clients gave a group, whether or not it exists."""
        self._check(Operation.DESCRIBE_CONFIGS, Resource(ResourceKind.GROUP, group_id))
        check_named(group_id)
        return self._group_settings.get(group_id, {})

    def groups_with_settings(self) -> list[str]:
        """The groups that clients gave settings, by name, those that this session may describe."""
        self._check(Operation.DESCRIBE_CONFIGS, CLUSTER)
        return [
            group_id
            for group_id in self._group_settings
            if self.allows(Operation.DESCRIBE, Resource(ResourceKind.GROUP, group_id))
        ]

    async def alter_group(
        self,
        group_id: str,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a group the settings that `plan` makes of its present ones."""
        self._check(Operation.ALTER_CONFIGS, Resource(ResourceKind.GROUP, group_id))
        check_named(group_id)
        if validate_only:
            await self._group_settings.alter(group_id, plan, validate_only=True)
            return
        with self.changing("group.configs", str(Resource(ResourceKind.GROUP, group_id))):
            await self._group_settings.alter(group_id, plan)

    async def group_coordinator(self, group_id: str) -> Node:
        """The node that coordinates a group; COORDINATOR_NOT_AVAILABLE while no node does."""
        index = await self.group(group_id, Operation.DESCRIBE).find_partition()
        return self._leader_of(TopicPartition(OFFSETS_TOPIC, index))

    # ---- transactions

    def transaction(
        self, transactional_id: str, operation: Operation, *, two_phase: bool = False
    ) -> TransactionHandle:
        """The transactional id, whether or not it is known yet; a reserved one may only be described.

        With `two_phase` its transactions get no timeout, which is a right of its own (KIP-939).
        """
        if operation is not Operation.DESCRIBE:
            check_client_id(transactional_id)
        resource = Resource(ResourceKind.TRANSACTIONAL_ID, transactional_id)
        self._check(operation, resource)
        if two_phase:
            self._check(Operation.TWO_PHASE_COMMIT, resource)
        return TransactionHandle(
            self._transactions, self._subscriptions, transactional_id, connection=self.number
        )

    async def take_transactional_id(self) -> Pooled:
        """A transactional id of the node for a caller without its own; `give_back_transactional_id` follows.

        It needs no right: the partitions that are written to do.
        """
        return await self._transaction_ids.take(self.session.principal)

    def give_back_transactional_id(self, pooled: Pooled) -> None:
        """The caller is done with an id that it took; what is open is aborted."""
        self._transaction_ids.give_back(pooled)

    def pooled_transaction(self, transactional_id: str) -> TransactionHandle:
        """A transactional id that `take_transactional_id` gave out; any other name is refused."""
        check_pooled_id(transactional_id)
        return TransactionHandle(
            self._transactions, self._subscriptions, transactional_id, connection=self.number
        )

    def begun_transaction(self, transactional_id: str) -> TransactionHandle:
        """The transactional id of a transaction that this client began, on a connection that was lost.

        An id of the node has no access control of its own: only the user that took it gets it.
        """
        if transactional_id.startswith(RESERVED_PREFIX):
            self._transaction_ids.check_owner(transactional_id, self.session.principal)
            return self.pooled_transaction(transactional_id)
        return self.transaction(transactional_id, Operation.WRITE)

    async def append_atomically(self, plan: Callable[[], Sequence[Write]]) -> list[Sequenced]:
        """Append to several partitions, all or nothing; returns when it is durable (`AtomicAppender`).

        `plan` finds the partitions by `writable`, in the turn in which everything is sequenced.
        """
        return await self._atomic.append(plan)

    async def abort_transaction(self, transactional_id: str, *, started_ms: int | None = None) -> None:
        """Abort what is open of any transactional id, as an administrator; INVALID_TXN_STATE."""
        self._check(Operation.WRITE, Resource(ResourceKind.TRANSACTIONAL_ID, transactional_id))
        await self._transactions.abort(transactional_id, started_ms=started_ms)

    def hanging_transactions(self, operation: Operation) -> list[HangingTransaction]:
        """Transactions that no coordinator will end, in topics that this session may do this to."""
        return [
            each
            for each in self._transactions.find_hanging() or ()
            if self.allows(operation, Resource(ResourceKind.TOPIC, each.partition.topic))
        ]

    async def abort_hanging_transaction(self, tp: TopicPartition, first_offset: int) -> None:
        """End a transaction that hangs in a partition; INVALID_TXN_STATE if none that hangs begins there."""
        self._check(Operation.CLUSTER_ACTION, CLUSTER)
        found = self.partition(tp, Operation.DESCRIBE)
        await self._transactions.abort_hanging(found, first_offset)

    def transactions(self, operation: Operation) -> list[TransactionDescription]:
        """The transactional ids of this node that this session may do this to."""
        return [
            each
            for each in self._transactions.list()
            if self.allows(operation, Resource(ResourceKind.TRANSACTIONAL_ID, each.transactional_id))
        ]

    async def write_marker(
        self,
        tp: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        """End a transaction in one partition, as an administrator; returns when the marker is durable."""
        self._check(Operation.CLUSTER_ACTION, CLUSTER)
        await self._transactions.write_marker(
            self._existing(tp),
            Identity(producer_id, producer_epoch),
            commit=commit,
            coordinator_epoch=coordinator_epoch,
        )

    async def transaction_coordinator(self, transactional_id: str) -> Node:
        """The node that coordinates a transactional id; COORDINATOR_NOT_AVAILABLE while no node does."""
        index = await self.transaction(transactional_id, Operation.DESCRIBE).find_partition()
        return self._leader_of(TopicPartition(TRANSACTIONS_TOPIC, index))

    # ---- subscriptions

    def subscription(self, name: str, operation: Operation) -> Subscription:
        """The subscription; RESOURCE_NOT_FOUND. To READ it takes the right to read its topic, too."""
        if operation is Operation.READ:
            return self._readable_subscription(name)
        self._check(operation, Resource(ResourceKind.SUBSCRIPTION, name))
        return self._subscriptions.known(name)

    def find_subscription(self, name: str, operation: Operation) -> Subscription | None:
        """The subscription, if it exists."""
        self._check(operation, Resource(ResourceKind.SUBSCRIPTION, name))
        found = self._subscriptions.get(name)
        if found is not None and operation is Operation.READ:
            self._check(Operation.READ, Resource(ResourceKind.TOPIC, found.config.topic))
        return found

    def subscriptions(self, operation: Operation) -> list[Subscription]:
        """Every subscription that this session may do this to, by name."""
        return [
            each
            for each in self._subscriptions
            if self.allows(operation, Resource(ResourceKind.SUBSCRIPTION, each.config.name))
        ]

    async def create_subscription(self, config: SubscriptionConfig, start: Start) -> Subscription:
        """Create a subscription, or find it with the same settings; it exists once it is durable.

        The broker will write its dead letters, so the session must have the right to write to their topic,
        and to create it if it does not exist.
        """
        self._check(Operation.CREATE, Resource(ResourceKind.SUBSCRIPTION, config.name))
        self._check(Operation.READ, Resource(ResourceKind.TOPIC, config.topic))
        if config.max_deliveries:
            letters = config.dead_letter_topic
            self._check(Operation.WRITE, Resource(ResourceKind.TOPIC, letters))
            if self._topics.get(letters) is None:
                self._check_creation(letters)
        if self._subscriptions.get(config.name) is not None:
            return await self._subscriptions.create(config, start)
        with self._changing_subscription("subscription.create", config.name):
            return await self._subscriptions.create(config, start)

    async def delete_subscription(self, name: str) -> None:
        """End a subscription and forget its cursors; its dead letters stay."""
        self._check(Operation.DELETE, Resource(ResourceKind.SUBSCRIPTION, name))
        with self._changing_subscription("subscription.delete", name):
            await self._subscriptions.delete(name)

    async def dead_letters(self, name: str, count: int) -> list[dict[str, Any]]:
        """The oldest dead letters of a subscription that were not redriven yet."""
        letters = self.subscription(name, Operation.READ).config.dead_letter_topic
        self._check(Operation.READ, Resource(ResourceKind.TOPIC, letters))  # others may have written to it
        return await self._subscriptions.dead_letters(name, count)

    async def redrive(self, name: str, count: int | None) -> int:
        """Deliver dead letters of a subscription again; returns how many, once that is durable.

        It puts what their topic holds before the members, and has what fails again written there.
        """
        found = self.subscription(name, Operation.ALTER)
        letters = Resource(ResourceKind.TOPIC, found.config.dead_letter_topic)
        self._check(Operation.READ, letters)
        self._check(Operation.WRITE, letters)
        return await found.redrive(count)

    # ---- the audit log

    def audit_log(self) -> Topic:
        """The topic of the audit log, for reading it; UNKNOWN_TOPIC_OR_PARTITION where there is none."""
        self._check(Operation.READ, Resource(ResourceKind.TOPIC, AUDIT_TOPIC))
        found = self._topics.get(AUDIT_TOPIC)
        if found is None:
            raise BrokerError(
                "there is no audit log here. It is written where a listener asks for a login, or with "
                'audit = "on" in [security]',
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return found

    # ---- the cluster

    def cluster(self, operation: Operation) -> ClusterView:
        """The cluster as this node sees it."""
        self._check(operation, CLUSTER)
        return self._cluster

    def cuts(self, operation: Operation) -> Cuts:
        """The cuts of the data directory, which hold every record of every topic."""
        self._check(operation, CLUSTER)
        return self._cuts

    def users(self, operation: Operation) -> Users:
        """Those who may log in: DESCRIBE to see them, ALTER to change them (KIP-554)."""
        self._check(operation, CLUSTER)
        return self._users

    def acls(self, operation: Operation) -> AuditedAcls:
        """The access control entries: DESCRIBE to see them, ALTER to change them."""
        self._check(operation, CLUSTER)
        return AuditedAcls(self._acls, self.changing)

    def tokens(self) -> OwnedTokens:
        """API tokens: each user has its own."""
        return OwnedTokens(self._tokens, self)

    def quotas(self, operation: Operation) -> Quotas:
        """The quotas of clients: DESCRIBE_CONFIGS to see them, ALTER_CONFIGS to change them (KIP-546)."""
        self._check(operation, CLUSTER)
        return self._quotas

    @property
    def cluster_id(self) -> str:
        """Known to every session, as are the nodes: a client must find them before it can ask for more."""
        return self._cluster.cluster_id

    @property
    def controller_id(self) -> BrokerId:
        return self._cluster.controller_id

    @property
    def nodes(self) -> Mapping[BrokerId, Node]:
        return self._cluster.nodes

    # ---- inside

    def _existing(self, tp: TopicPartition) -> Partition:
        """A partition that this node leads, whatever the session may do to it."""
        topic = self._topics.get(tp.topic)
        if topic is None:
            raise unknown_topic(tp.topic)
        if not 0 <= tp.partition < len(topic.partitions):
            raise unknown_partition(topic, tp.partition)
        found = topic.partitions[tp.partition]
        found.check_led()
        return found

    def _leader_of(self, tp: TopicPartition) -> Node:
        partition = self._topics.find_partition(tp)
        node = None if partition is None else self._cluster.nodes.get(partition.leader)
        if node is None:
            raise BrokerError(f"{tp} has no leader now", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return node

    def _admit(
        self, tp: TopicPartition, operation: Operation, admitted: dict[TopicPartition, Partition]
    ) -> Partition:
        found = self.partition(tp, operation)
        if len(admitted) >= _ADMITTED_MAX:
            admitted.clear()
        admitted[tp] = found
        return found

    def _readable_subscription(self, name: str) -> Subscription:
        """Kept like a partition: this is asked for every acknowledgement."""
        if self._version != self._topics.version:
            self._forget()
        found = self._read_subscriptions.get(name)
        if found is None or found.closed:
            self._check(Operation.READ, Resource(ResourceKind.SUBSCRIPTION, name))
            found = self._subscriptions.known(name)
            self._check(Operation.READ, Resource(ResourceKind.TOPIC, found.config.topic))
            self._read_subscriptions[name] = found
        return found

    def _forget(self) -> None:
        self._version = self._topics.version
        self._readable.clear()
        self._writable.clear()
        self._writable_topics.clear()
        self._read_subscriptions.clear()

    def _changing_topic(self, what: str, name: str) -> Change:
        return self.changing(what, str(Resource(ResourceKind.TOPIC, name)))

    def _changing_subscription(self, what: str, name: str) -> Change:
        return self.changing(what, str(Resource(ResourceKind.SUBSCRIPTION, name)))

    def _check_creation(self, name: str) -> None:
        """CREATE on the cluster or on the topic; without both the topic is refused, as in Kafka."""
        if not self.allows(Operation.CREATE, CLUSTER):
            self._check(Operation.CREATE, Resource(ResourceKind.TOPIC, name))

    def _check(self, operation: Operation, resource: Resource) -> None:
        """Authorization: the one place where a session is refused."""
        if not self._authorize(self.session, operation, resource):
            self._audit.denied(self.session, operation, resource)
            raise self._refusal(operation, resource)

    def _refusal(self, operation: Operation, resource: Resource) -> BrokerError:
        """What a session is told that may not do something; and how to allow it, if it may DESCRIBE it."""
        message = f"{self.session.principal} may not {operation.name.lower()} {resource}"
        if self._authorize(self.session, Operation.DESCRIBE, resource):
            message += f". To allow it: {granting_command(self.session.principal, operation, resource)}"
        return BrokerError(message, code=_REFUSALS[resource.kind])
