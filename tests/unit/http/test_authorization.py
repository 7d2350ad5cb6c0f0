"""Every operation of REST asks the gate, as the session of its request: a real node whose rule says no."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.rule import Revocable
from tests.unit.http.conftest import Run, check_error, partition_of, wait_until

from tailrace.broker import NewTopic
from tailrace.broker.gate import Authorize, Gate
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions import Start, SubscriptionConfig
from tailrace.http.error import Code
from tailrace.http.session import session_of
from tailrace.http.table import OPERATIONS
from tailrace.model import TopicPartition
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.model.session import ANONYMOUS, Session
from tailrace.server.node import Node

HOST = "192.0.2.7"
WANTED = Session(host=HOST, listener="http")
PARAMS = {
    "topic": "orders",
    "group": "readers",
    "subscription": "workers",
    "name": "archive",
    "cut": "cut-1",
    "user": "alice",
    "acl": "0" * 32,
    "token": "00ff00ff00ff00ff",
    "transactional_id": "billing",
}

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
SUBSCRIPTION, TRANSACTION = ResourceKind.SUBSCRIPTION, ResourceKind.TRANSACTIONAL_ID
RIGHTS: dict[str, tuple[Operation, ResourceKind]] = {
    "createTopic": (Operation.CREATE, TOPIC),
    "getTopic": (Operation.DESCRIBE, TOPIC),
    "changeTopic": (Operation.DESCRIBE, TOPIC),
    "deleteTopic": (Operation.DELETE, TOPIC),
    "listTopicConfigs": (Operation.DESCRIBE_CONFIGS, TOPIC),
    "produceRecords": (Operation.WRITE, TOPIC),
    "readRecords": (Operation.READ, TOPIC),
    "deleteRecords": (Operation.DELETE, TOPIC),
    "tailTopic": (Operation.READ, TOPIC),
    "listGroupOffsets": (Operation.DESCRIBE, GROUP),
    "getGroup": (Operation.DESCRIBE, GROUP),
    "deleteGroup": (Operation.DELETE, GROUP),
    "resetGroupOffsets": (Operation.READ, GROUP),
    "getCluster": (Operation.DESCRIBE, CLUSTER),
    "getClusterHealth": (Operation.DESCRIBE, CLUSTER),
    "createCut": (Operation.ALTER, CLUSTER),
    "listAuditEntries": (Operation.READ, TOPIC),
    "listUsers": (Operation.DESCRIBE, CLUSTER),
    "createUser": (Operation.ALTER, CLUSTER),
    "changeUser": (Operation.ALTER, CLUSTER),
    "deleteUser": (Operation.ALTER, CLUSTER),
    "listQuotas": (Operation.DESCRIBE_CONFIGS, CLUSTER),
    "changeQuota": (Operation.ALTER_CONFIGS, CLUSTER),
    "listAcls": (Operation.DESCRIBE, CLUSTER),
    "createAcls": (Operation.ALTER, CLUSTER),
    "deleteAcl": (Operation.ALTER, CLUSTER),
    "listTokens": (Operation.DESCRIBE, CLUSTER),
    "createToken": (Operation.ALTER, CLUSTER),
    "revokeToken": (Operation.ALTER, CLUSTER),
    "rotateTokenKey": (Operation.ALTER, CLUSTER),
    "commitRecords": (Operation.WRITE, TOPIC),
    "getTransaction": (Operation.DESCRIBE, TRANSACTION),
    "abortTransaction": (Operation.DESCRIBE, TRANSACTION),
    "abortHangingTransaction": (Operation.CLUSTER_ACTION, CLUSTER),
    "renewCut": (Operation.ALTER, CLUSTER),
    "deleteCut": (Operation.ALTER, CLUSTER),
    "listPipelines": (Operation.READ, TOPIC),
    "stopPipeline": (Operation.READ, TOPIC),
    "listConfigs": (Operation.DESCRIBE_CONFIGS, CLUSTER),
    "listSettings": (Operation.DESCRIBE_CONFIGS, CLUSTER),
    "createSubscription": (Operation.CREATE, SUBSCRIPTION),
    "getSubscription": (Operation.DESCRIBE, SUBSCRIPTION),
    "deleteSubscription": (Operation.DELETE, SUBSCRIPTION),
    "replaySubscription": (Operation.ALTER, SUBSCRIPTION),
    "seekSubscription": (Operation.ALTER, SUBSCRIPTION),
    "listDeadLetters": (Operation.READ, SUBSCRIPTION),
    "redriveDeadLetters": (Operation.ALTER, SUBSCRIPTION),
    "pullMessages": (Operation.READ, SUBSCRIPTION),
    "ackMessages": (Operation.READ, SUBSCRIPTION),
    "nackMessages": (Operation.READ, SUBSCRIPTION),
    "extendMessages": (Operation.READ, SUBSCRIPTION),
    "getMetrics": (Operation.DESCRIBE, CLUSTER),
    "listBrokerMetrics": (Operation.DESCRIBE, CLUSTER),
    "getTopicMetrics": (Operation.DESCRIBE, TOPIC),
    "getGroupMetrics": (Operation.DESCRIBE, GROUP),
    "getSubscriptionMetrics": (Operation.DESCRIBE, SUBSCRIPTION),
}
"""What an operation is refused for, where nothing is allowed."""

LISTS = {
    "listTopics": ("topics", Operation.DESCRIBE, TOPIC),
    "listGroups": ("groups", Operation.DESCRIBE, GROUP),
    "listSubscriptions": ("subscriptions", Operation.DESCRIBE, SUBSCRIPTION),
    "listTopicMetrics": ("topics", Operation.DESCRIBE, TOPIC),
    "listTransactions": ("transactions", Operation.DESCRIBE, TRANSACTION),
}
"""Operations that leave out what may not be seen."""

OPEN = {"getHealth", "getReadiness"}
"""Probes, which anybody may send."""


BODIES: dict[str, Any] = {
    "createTopic": {"name": "n"},
    "changeTopic": {"partitions": 5},
    "produceRecords": {"records": [{"value": "x"}]},
    "resetGroupOffsets": {"to": "earliest"},
    "createSubscription": {"name": "s", "topic": "orders"},
    "commitRecords": {"topics": {"orders": [{"value": "x"}]}},
    "abortTransaction": {},
    "abortHangingTransaction": {"topic": "orders", "partition": 0, "first_offset": 0},
    "createToken": {"scope": ["all"], "owner": "alice"},
    "rotateTokenKey": {},
    "changeQuota": {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1e6}},
    "createUser": {"name": "alice", "password": "open sesame, 42"},
    "changeUser": {"enabled": False},
    "createAcls": {"acls": []},
    "replaySubscription": {"to": "earliest"},
    "seekSubscription": {"to": "earliest"},
    "ackMessages": {"ack_ids": []},
    "nackMessages": {"ack_ids": []},
    "extendMessages": {"ack_ids": [], "extend_ms": 1},
}
QUERIES = {"deleteRecords": "?partition=0&before=latest"}


class Rule:
    """Allows what it is told to allow, and notes what it was asked."""

    def __init__(self, allow: Authorize) -> None:
        self._allow = allow
        self.asked: list[tuple[Session, Operation, Resource]] = []

    def __call__(self, session: Session, operation: Operation, resource: Resource) -> bool:
        self.asked.append((session, operation, resource))
        return self._allow(session, operation, resource)


@asynccontextmanager
async def ruled(node: Node, allow: Authorize) -> AsyncIterator[tuple[httpx.AsyncClient, Rule]]:
    """A client of a node that has something of everything, and what its requests are measured by."""
    broker = node.broker
    for name in ("orders", "secret"):
        await broker.topics.create(NewTopic(name=name))
    await broker.subscriptions.wait_loaded()
    await broker.subscriptions.create(
        SubscriptionConfig.read("workers", "orders", {}), Start.parse("earliest")
    )
    offsets = {TopicPartition(name, 0): OffsetToCommit(0) for name in ("orders", "secret")}
    await broker.groups.commit_offsets(CommitRequest(group_id="readers", offsets=offsets))
    await broker.transactions.init("billing", timeout_ms=60_000)
    rule = Rule(allow)
    app = node.http_app()
    app.service.gate = Gate(broker, authorize=rule)
    transport = httpx.ASGITransport(app, client=(HOST, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client, rule


def refuse(session: Session, operation: Operation, resource: Resource) -> bool:
    return False


async def request(client: httpx.AsyncClient, name: str) -> httpx.Response:
    (operation,) = [each for each in OPERATIONS if each.name == name]
    path = operation.path.replace(":path", "").format(**PARAMS)
    return await client.request(operation.method, f"{path}{QUERIES.get(name, '')}", json=BODIES.get(name))


def test_all_operations_are_judged_here() -> None:
    assert {each.name for each in OPERATIONS} == RIGHTS.keys() | LISTS.keys() | OPEN | {"whoAmI"}


@pytest.mark.parametrize("name", RIGHTS)
def test_an_operation_needs_its_right(run: Run, node: Node, name: str) -> None:
    async def scenario() -> None:
        async with ruled(node, refuse) as (client, rule):
            answer = await request(client, name)
        check_error(answer, Code.AUTHORIZATION_FAILED, "User:ANONYMOUS may not")
        assert {session for session, _, _ in rule.asked} == {WANTED}
        assert RIGHTS[name] in [(operation, resource.kind) for _, operation, resource in rule.asked]

    run(scenario())


@pytest.mark.parametrize("name", LISTS)
def test_a_list_leaves_out_what_may_not_be_seen(run: Run, node: Node, name: str) -> None:
    field, operation, kind = LISTS[name]

    async def scenario() -> None:
        async with ruled(node, refuse) as (client, rule):
            answer = await request(client, name)
        assert (answer.status_code, answer.json()[field]) == (200, [])
        asked = {(session, op, resource.kind) for session, op, resource in rule.asked}
        assert asked - {(WANTED, Operation.DESCRIBE, CLUSTER)} == {(WANTED, operation, kind)}

    run(scenario())


@pytest.mark.parametrize("name", sorted(OPEN))
def test_probes_need_no_right(run: Run, node: Node, name: str) -> None:
    async def scenario() -> None:
        async with ruled(node, refuse) as (client, rule):
            assert (await request(client, name)).status_code == 200
        assert rule.asked == []

    run(scenario())


@pytest.mark.parametrize("known", [[], ["ALTER"], ["ALTER", "DESCRIBE"]])
def test_a_caller_is_told_what_it_may_do_with_the_cluster(run: Run, node: Node, known: list[str]) -> None:
    async def scenario() -> None:
        async with ruled(node, lambda _, asked, __: asked.name in known) as (client, _):
            answer = await request(client, "whoAmI")
            assert answer.json()["cluster_operations"] == known
            assert answer.json()["principal"] == "User:ANONYMOUS"

    run(scenario())


# ---- several rights at once


def without_secret(session: Session, operation: Operation, resource: Resource) -> bool:
    return resource != Resource(TOPIC, "secret")


def test_the_cluster_counts_what_may_be_seen(run: Run, node: Node) -> None:
    async def scenario() -> None:
        async with ruled(node, without_secret) as (client, _):
            found = (await request(client, "getCluster")).json()
        assert (found["topics"], found["groups"], found["subscriptions"]) == (1, 1, 1)

    run(scenario())


def test_a_group_does_not_tell_of_topics_that_may_not_be_seen(run: Run, node: Node) -> None:
    async def scenario() -> None:
        async with ruled(node, without_secret) as (client, _):
            group = (await request(client, "getGroup")).json()
            offsets = (await request(client, "listGroupOffsets")).json()
            (listed,) = (await request(client, "listGroups")).json()["groups"]
        assert [each["topic"] for each in group["offsets"]] == ["orders"]
        assert [each["topic"] for each in offsets["offsets"]] == ["orders"]
        assert listed["topics"] == ["orders"]

    run(scenario())


def test_a_group_is_moved_only_in_topics_that_may_be_read(run: Run, node: Node) -> None:
    async def scenario() -> None:
        async with ruled(node, without_secret) as (client, _):
            refused = await request(client, "resetGroupOffsets")
            moved = await client.put(
                "/api/v1/consumer-groups/readers/offsets", json={"to": "latest", "topics": ["orders"]}
            )
        check_error(refused, Code.AUTHORIZATION_FAILED, "read topic 'secret'")
        assert moved.status_code == 200, moved.text

    run(scenario())


@pytest.mark.parametrize(
    ("body", "operation"),
    [({"partitions": 5}, Operation.ALTER), ({"configs": {"retention.ms": 1000}}, Operation.ALTER_CONFIGS)],
)
def test_a_topic_is_changed_by_those_who_may(
    run: Run, node: Node, body: dict[str, Any], operation: Operation
) -> None:
    async def scenario() -> None:
        async with ruled(node, lambda _session, asked, _resource: asked is not operation) as (client, _):
            answer = await client.patch("/api/v1/topics/orders", json=body)
        check_error(answer, Code.AUTHORIZATION_FAILED, f"may not {operation.name.lower()} topic 'orders'")

    run(scenario())


# ---- sessions


@pytest.mark.parametrize(
    ("client", "host"), [(("192.0.2.7", 4711), "192.0.2.7"), (("::1", 1), "::1"), (None, "")]
)
def test_a_session_is_of_the_address_of_the_client(client: tuple[str, int] | None, host: str) -> None:
    session = session_of({"type": "http", "client": client})
    assert session == Session(principal=ANONYMOUS, host=host, listener="http")


def test_a_server_need_not_know_its_clients() -> None:
    assert session_of({"type": "http"}) == Session(listener="http")


# ---- what lasts


def test_a_read_that_waits_is_refused_when_the_right_goes(run: Run, node: Node) -> None:
    async def scenario() -> None:
        rule = Revocable()
        async with ruled(node, rule) as (client, _):
            partition = partition_of(node.broker, "orders", 0)
            path = "/api/v1/topics/orders/records?offset=latest&timeout=30000"
            asking = asyncio.ensure_future(client.get(path))
            await wait_until(lambda: len(partition.waiters) == 2)  # and the subscription
            rule.revoked = True
            node.broker.gate.rights_changed()
            node.broker.publisher.publish(partition, [NewMessage(None, b"hidden")])
            answer = await asking
            check_error(answer, Code.AUTHORIZATION_FAILED, "may not read topic 'orders'")

    run(scenario())


def test_a_pull_that_waits_is_refused_and_its_message_is_for_others(run: Run, node: Node) -> None:
    async def scenario() -> None:
        rule = Revocable()
        async with ruled(node, rule) as (client, _):
            workers = node.broker.subscriptions.known("workers")
            path = "/api/v1/subscriptions/workers/pull"
            asking = asyncio.ensure_future(client.post(path, json={"max": 1, "wait_ms": 20_000}))
            await wait_until(lambda: len(workers.members) == 1)
            rule.revoked = True
            node.broker.gate.rights_changed()
            partition = partition_of(node.broker, "orders", 0)
            node.broker.publisher.publish(partition, [NewMessage(None, b"hidden")])
            answer = await asking
            check_error(answer, Code.AUTHORIZATION_FAILED, "may not read subscription 'workers'")
            assert all(each.machine.in_flight == 0 for each in workers.partitions)
            rule.revoked = False
            node.broker.gate.rights_changed()
            pulled = await client.post(path, json={"max": 1, "wait_ms": 20_000})
            assert [each["value"] for each in pulled.json()["messages"]] == ["hidden"]

    run(scenario())
