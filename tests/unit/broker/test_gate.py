"""The gate over the memory engine: what it finds, what it refuses, what it keeps until a topic changes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node
from tailrace.broker.configs import ConfigSource
from tailrace.broker.gate import Access, Gate
from tailrace.broker.publishing import published_topic
from tailrace.broker.subscriptions import Start, SubscriptionConfig
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, ErrorCode, TopicPartition
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.model.session import EMBEDDED, INTERNAL, Principal, Session
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock

ALICE = Session(principal=Principal("User", "alice"), host="192.0.2.7", listener="kafka")
ORDERS = TopicPartition("orders", 0)
JOBS = SubscriptionConfig.read("workers", "orders", {})


@asynccontextmanager
async def started(values: dict[str, str] | None = None) -> AsyncIterator[Broker]:
    clock, node = FakeClock(), BrokerId(1)
    storage, metadata = MemoryStorage(clock=clock), StoredMetadata(MemoryStore())
    broker = Broker(
        node_id=node,
        nodes={node: Node(node_id=node)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read(values),
        clock=clock,
    )
    await broker.start()
    await broker.subscriptions.wait_loaded()
    try:
        yield broker
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def play(scenario: Callable[[Broker], Awaitable[None]], values: dict[str, str] | None = None) -> None:
    async def main() -> None:
        async with started(values) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=2))
            await asyncio.wait_for(scenario(broker), 30)

    asyncio.run(main())


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


async def refusal(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


# ---- what is there, and what is not


def test_partitions_are_found_and_kept() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        topic = broker.topics.get("orders")
        assert topic is not None
        for find in (access.readable, access.writable):
            assert find(ORDERS) is find(ORDERS) is topic.partitions[0]

    play(scenario)


@pytest.mark.parametrize("method", ["readable", "writable"])
@pytest.mark.parametrize(
    ("tp", "code"),
    [
        (TopicPartition("nothing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("orders", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("orders", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("no/slash", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("x" * 250, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_does_not_exist_has_one_error(method: str, tp: TopicPartition, code: ErrorCode) -> None:
    async def scenario(broker: Broker) -> None:
        assert code_of(lambda: getattr(broker.gate.access(ALICE), method)(tp)) == code

    play(scenario)


def test_a_partition_that_another_node_leads_is_not_given_out() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        partition = access.readable(ORDERS)
        partition._node_id = BrokerId(2)
        broker.topics._changed()
        for find in (access.readable, access.writable):
            assert code_of(lambda find=find: find(ORDERS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[misc]

    play(scenario)


def test_a_kept_partition_is_forgotten_when_its_topic_goes() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        before = access.readable(ORDERS), access.writable(ORDERS), access.writable_topic_nowait("orders")
        version = access.version
        await broker.delete_topic("orders")
        assert access.version != version
        assert code_of(lambda: access.readable(ORDERS)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(lambda: access.writable(ORDERS)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert access.writable_topic_nowait("orders") is None
        await broker.topics.create(NewTopic(name="orders", partitions=1))
        after = access.readable(ORDERS), access.writable(ORDERS), access.writable_topic_nowait("orders")
        assert not set(map(id, before)) & set(map(id, after))

    play(scenario)


def test_topics_are_found_by_name_and_by_id() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        topic = access.topic("orders", Operation.DESCRIBE)
        assert access.topic_by_id(topic.id, Operation.DESCRIBE) is topic
        assert code_of(lambda: access.topic_by_id(uuid4(), Operation.READ)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert "orders" in [each.name for each in access.topics(Operation.DESCRIBE)]

    play(scenario)


def test_a_later_topic_of_the_same_name_is_another_topic() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        topic = access.topic("orders", Operation.READ)
        await broker.topics.add_partitions("orders", 3)
        assert access.still_exists(topic)
        await broker.delete_topic("orders")
        assert not access.still_exists(topic)
        await broker.topics.create(NewTopic(name="orders"))
        assert not access.still_exists(topic)
        assert access.still_exists(access.topic("orders", Operation.READ))

    play(scenario)


# ---- who may write what


RESERVED = ["__consumer_offsets", "__transaction_state", "__tailrace_cursors", "__tailrace_delayed"]


@pytest.mark.parametrize("name", RESERVED)
def test_no_session_writes_what_belongs_to_the_broker(name: str) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.topics.ensure(NewTopic(name=name, partitions=1, internal=True))
        access = broker.gate.access(ALICE)
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert code_of(lambda: access.writable(TopicPartition(name, 0))) == code
        assert code_of(lambda: access.writable_topic_nowait(name)) == code
        assert await refusal(access.writable_topic(NewTopic(name=name))) == code
        assert await refusal(access.create_topic(NewTopic(name=name))) == ErrorCode.INVALID_REQUEST
        assert access.readable(TopicPartition(name, 0)).topic == name

    play(scenario)


def test_every_client_may_write_what_pipelines_tell_of_themselves() -> None:
    async def scenario(broker: Broker) -> None:
        access, name = broker.gate.access(ALICE), "__tailrace_pipelines"
        await access.create_topic(NewTopic(name=name, partitions=1, configs={"cleanup.policy": "compact"}))
        assert access.writable(TopicPartition(name, 0)).topic == name
        assert (await access.writable_topic(published_topic(name))).name == name

    play(scenario)


def test_topics_come_to_be_by_being_written() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        created = await access.writable_topic(published_topic("new"))
        assert (len(created.partitions), created.settings.append_time) == (1, True)
        assert await access.writable_topic(NewTopic(name="new")) is created
        assert await refusal(access.writable_topic(NewTopic(name="__new"))) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    play(scenario, {"num.partitions": "3"})


def test_a_node_may_create_no_topics_by_name() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(ALICE)
        assert await refusal(access.writable_topic(NewTopic(name="new"))) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert (await access.ensure_topic(NewTopic(name="new"))).name == "new"

    play(scenario, {"auto.create.topics.enable": "false"})


# ---- authorization


Use = Callable[[Access], object]


async def finished(use: Use, access: Access) -> None:
    found = use(access)
    if isinstance(found, Awaitable):
        await found


NODE_CHANGE = ConfigSource.DYNAMIC_BROKER, dict


USES: list[tuple[str, Use, Operation, ResourceKind]] = [
    ("readable", lambda a: a.readable(ORDERS), Operation.READ, ResourceKind.TOPIC),
    ("writable", lambda a: a.writable(ORDERS), Operation.WRITE, ResourceKind.TOPIC),
    ("trim", lambda a: a.delete_records(ORDERS, 0), Operation.DELETE, ResourceKind.TOPIC),
    ("audit", lambda a: a.audit_log(), Operation.READ, ResourceKind.TOPIC),
    ("partition", lambda a: a.partition(ORDERS, Operation.DELETE), Operation.DELETE, ResourceKind.TOPIC),
    ("topic", lambda a: a.topic("orders", Operation.ALTER), Operation.ALTER, ResourceKind.TOPIC),
    ("unknown", lambda a: a.topic("nothing", Operation.READ), Operation.READ, ResourceKind.TOPIC),
    ("find", lambda a: a.writable_topic_nowait("orders"), Operation.WRITE, ResourceKind.TOPIC),
    ("write", lambda a: a.writable_topic(NewTopic(name="n")), Operation.WRITE, ResourceKind.TOPIC),
    ("auto", lambda a: a.auto_create_topic(NewTopic(name="n")), Operation.CREATE, ResourceKind.TOPIC),
    ("ensure", lambda a: a.ensure_topic(NewTopic(name="n")), Operation.CREATE, ResourceKind.TOPIC),
    ("ensured", lambda a: a.ensure_topic(NewTopic(name="orders")), Operation.DESCRIBE, ResourceKind.TOPIC),
    ("create", lambda a: a.create_topic(NewTopic(name="n")), Operation.CREATE, ResourceKind.TOPIC),
    ("delete", lambda a: a.delete_topic("orders"), Operation.DELETE, ResourceKind.TOPIC),
    ("grow", lambda a: a.add_partitions("orders", 9), Operation.ALTER, ResourceKind.TOPIC),
    ("alter", lambda a: a.alter_topic("orders", dict), Operation.ALTER_CONFIGS, ResourceKind.TOPIC),
    ("id", lambda a: a.next_producer_id(), Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER),
    ("group", lambda a: a.group("g", Operation.READ), Operation.READ, ResourceKind.GROUP),
    (
        "group settings",
        lambda a: a.group_settings("g"),
        Operation.DESCRIBE_CONFIGS,
        ResourceKind.GROUP,
    ),
    ("all settings", lambda a: a.groups_with_settings(), Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER),
    ("alter group", lambda a: a.alter_group("g", dict), Operation.ALTER_CONFIGS, ResourceKind.GROUP),
    ("coordinator", lambda a: a.group_coordinator("g"), Operation.DESCRIBE, ResourceKind.GROUP),
    ("sub", lambda a: a.subscription("s", Operation.READ), Operation.READ, ResourceKind.SUBSCRIPTION),
    (
        "find sub",
        lambda a: a.find_subscription("s", Operation.READ),
        Operation.READ,
        ResourceKind.SUBSCRIPTION,
    ),
    (
        "create sub",
        lambda a: a.create_subscription(JOBS, Start.parse("earliest")),
        Operation.CREATE,
        ResourceKind.SUBSCRIPTION,
    ),
    ("delete sub", lambda a: a.delete_subscription("s"), Operation.DELETE, ResourceKind.SUBSCRIPTION),
    ("letters", lambda a: a.dead_letters("s", 1), Operation.READ, ResourceKind.SUBSCRIPTION),
    ("cluster", lambda a: a.cluster(Operation.DESCRIBE), Operation.DESCRIBE, ResourceKind.CLUSTER),
    (
        "auto found",
        lambda a: a.auto_create_topic(NewTopic(name="orders")),
        Operation.CREATE,
        ResourceKind.TOPIC,
    ),
    ("alter node", lambda a: a.alter_node(*NODE_CHANGE), Operation.ALTER_CONFIGS, ResourceKind.CLUSTER),
    ("cuts", lambda a: a.cuts(Operation.ALTER), Operation.ALTER, ResourceKind.CLUSTER),
    ("replica", lambda a: a.readable_by_replica(ORDERS), Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
    ("redrive", lambda a: a.redrive("s", None), Operation.ALTER, ResourceKind.SUBSCRIPTION),
    (
        "quotas",
        lambda a: a.quotas(Operation.ALTER_CONFIGS),
        Operation.ALTER_CONFIGS,
        ResourceKind.CLUSTER,
    ),
    ("acls", lambda a: a.acls(Operation.ALTER), Operation.ALTER, ResourceKind.CLUSTER),
    ("users", lambda a: a.users(Operation.ALTER), Operation.ALTER, ResourceKind.CLUSTER),
    (
        "transaction",
        lambda a: a.transaction("t", Operation.WRITE),
        Operation.WRITE,
        ResourceKind.TRANSACTIONAL_ID,
    ),
    ("begun", lambda a: a.begun_transaction("t"), Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
    ("abort", lambda a: a.abort_transaction("t"), Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
    (
        "abort hanging",
        lambda a: a.abort_hanging_transaction(ORDERS, 0),
        Operation.CLUSTER_ACTION,
        ResourceKind.CLUSTER,
    ),
    (
        "transaction coordinator",
        lambda a: a.transaction_coordinator("t"),
        Operation.DESCRIBE,
        ResourceKind.TRANSACTIONAL_ID,
    ),
    (
        "marker",
        lambda a: a.write_marker(ORDERS, producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0),
        Operation.CLUSTER_ACTION,
        ResourceKind.CLUSTER,
    ),
]

CODES = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.SUBSCRIPTION: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

TESTED_BY_THEMSELVES = frozenset(
    {
        "topic_by_id",
        "topics",
        "groups",
        "subscriptions",
        "transactions",
        "hanging_transactions",
        "creatable_topics",
    }
)
"""Methods that answer about several objects, or whose object must exist first."""

NEED_NO_RIGHT = {
    "allows": "is the rule itself",
    "still_exists": "takes a topic that was given out",
    "watch_topics": "tells that something changed, not what",
    "unwatch_topics": "ends that",
    "changing": "notes what a caller does with what it was given here",
    "due_ms": "looks at the message only",
    "delay": "takes a topic that was given out for writing",
    "take_transactional_id": "the partitions that are written to need the right",
    "give_back_transactional_id": "takes an id that was given out",
    "pooled_transaction": "the partitions that are written to need the right",
    "tokens": "each user has its own; `OwnedTokens` asks for those of others",
    "append_atomically": "its plan asks for each partition",
}


@pytest.mark.parametrize(("name", "use", "operation", "kind"), USES, ids=[each[0] for each in USES])
def test_every_way_in_asks_the_one_rule(
    name: str, use: Use, operation: Operation, kind: ResourceKind
) -> None:
    async def scenario(broker: Broker) -> None:
        asked: list[tuple[Session, Operation, Resource]] = []

        def refuse(session: Session, operation: Operation, resource: Resource) -> bool:
            asked.append((session, operation, resource))
            return False

        access = Gate(broker, authorize=refuse).access(ALICE)
        with pytest.raises(BrokerError, match="User:alice may not") as caught:
            await finished(use, access)
        assert "tailrace acl" not in str(caught.value)
        assert caught.value.code == (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == "replica" else CODES[kind]
        )
        assert (ALICE, operation, kind) in [(session, what, to.kind) for session, what, to in asked]
        assert asked[-1][1] is Operation.DESCRIBE  # whether the error may say how to allow it
        assert broker.topics.get("n") is None

    play(scenario)


def test_every_method_of_an_access_is_tested_or_needs_no_right() -> None:
    methods = {
        name for name, found in vars(Access).items() if not name.startswith("_") and inspect.isfunction(found)
    }
    tested = {name for _, use, _, _ in USES for name in use.__code__.co_names} & methods
    assert methods - tested - TESTED_BY_THEMSELVES == NEED_NO_RIGHT.keys()


def test_a_topic_is_found_by_its_id_with_the_right_to_it() -> None:
    async def scenario(broker: Broker) -> None:
        topic_id = broker.gate.access(ALICE).topic("orders", Operation.READ).id
        nothing = Gate(broker, authorize=lambda *_: False).access(ALICE)
        with pytest.raises(BrokerError) as existing:
            nothing.topic_by_id(topic_id, Operation.READ)
        missing_id = uuid4()
        with pytest.raises(BrokerError) as missing:
            nothing.topic_by_id(missing_id, Operation.READ)
        assert str(existing.value) == str(missing.value).replace(str(missing_id), str(topic_id))
        assert existing.value.code is missing.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        describing = Gate(broker, authorize=lambda _s, operation, _r: operation is Operation.DESCRIBE)
        code = code_of(lambda: describing.access(ALICE).topic_by_id(topic_id, Operation.READ))
        assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    play(scenario)


def test_the_transaction_of_another_user_is_not_repeated() -> None:
    """A repeated commit aborts what is open, and its name can be guessed: it is the owner's alone."""
    bob = Session(principal=Principal("User", "bob"), listener="native")

    async def scenario(broker: Broker) -> None:
        broker.transactions.start()
        pooled = await broker.gate.access(ALICE).take_transactional_id()
        name = pooled.transactional_id
        code = code_of(lambda: broker.gate.access(bob).begun_transaction(name))
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.gate.access(ALICE).begun_transaction(name).id == name

    play(scenario)


def test_lists_leave_out_what_a_session_may_not_see() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.subscriptions.create(JOBS, Start.parse("earliest"))
        nothing = Gate(broker, authorize=lambda *_: False).access(ALICE)
        assert nothing.topics(Operation.DESCRIBE) == []
        assert nothing.groups(Operation.DESCRIBE) == []
        assert nothing.subscriptions(Operation.DESCRIBE) == []
        assert nothing.transactions(Operation.DESCRIBE) == []
        assert nothing.hanging_transactions(Operation.DESCRIBE) == []
        assert nothing.creatable_topics(["n"]) == []
        all_of_it = broker.gate.access(ALICE)
        assert [each.config.name for each in all_of_it.subscriptions(Operation.DESCRIBE)] == ["workers"]
        assert all_of_it.creatable_topics(["n", "orders"]) == ["n"]

    play(scenario)


@pytest.mark.parametrize("granted", [ResourceKind.TOPIC, ResourceKind.CLUSTER])
def test_a_topic_is_created_with_the_right_to_it_or_to_the_cluster(granted: ResourceKind) -> None:
    async def scenario(broker: Broker) -> None:
        access = Gate(broker, authorize=lambda _session, _operation, to: to.kind is granted).access(ALICE)
        assert (await access.create_topic(NewTopic(name="n"))).name == "n"

    play(scenario)


def test_internal_topics_are_not_grown() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await broker.topics.create(NewTopic(name="__inside", partitions=1, internal=True))
        access = broker.gate.access(ALICE)
        assert await refusal(access.add_partitions("__inside", 2)) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(topic.partitions) == 1
        await access.add_partitions("orders", 3)
        assert access.topic("orders", Operation.DESCRIBE).partitions[2].index == 2

    play(scenario)


def test_every_session_may_know_the_nodes() -> None:
    async def scenario(broker: Broker) -> None:
        nothing = Gate(broker, authorize=lambda *_: False).access(ALICE)
        assert (list(nothing.nodes), nothing.controller_id) == ([1], 1)
        assert nothing.cluster_id == broker.cluster.cluster_id != ""
        assert nothing.topic_defaults["num.partitions"] == "5"

    play(scenario, {"num.partitions": "5"})


def test_a_partition_is_authorized_once_until_a_topic_changes() -> None:
    async def scenario(broker: Broker) -> None:
        asked: list[Operation] = []

        def note(session: Session, operation: Operation, resource: Resource) -> bool:
            asked.append(operation)
            return True

        access = Gate(broker, authorize=note).access(ALICE)
        for _ in range(3):
            access.writable(ORDERS)
        assert asked == [Operation.WRITE]
        await broker.topics.create(NewTopic(name="another"))
        access.writable(ORDERS)
        assert asked == [Operation.WRITE] * 2

    play(scenario)


def test_an_access_has_no_way_to_the_broker() -> None:
    async def scenario(broker: Broker) -> None:
        access = broker.gate.access(EMBEDDED)
        held = [getattr(access, name) for name in Access.__slots__]
        assert not any(isinstance(each, Broker | Gate) for each in held)
        public = [name for name in dir(Access) if not name.startswith("_")]
        assert not {"broker", "gate", "topics_of", "storage"} & set(public)

    play(scenario)


def test_sessions_say_who_they_are() -> None:
    assert str(ALICE) == "User:alice at 192.0.2.7 by kafka"
    assert str(EMBEDDED) == "User:ANONYMOUS at this process by embedded"
    assert str(INTERNAL) == "Broker:internal at this process by internal"
