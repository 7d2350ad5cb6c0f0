"""What lasts longer than a request feels a removed entry: long polls, pushes, tails. Who is never asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.rights import (
    SUBSCRIPTION,
    TOPIC,
    World,
    on_subscription,
    on_topic,
    world,
)
from tests.unit.kafka import rig as kafka_rig
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tailrace.broker.gate import allow_by_acls, allow_everything, granting_command
from tailrace.broker.publishing import NewMessage
from tailrace.kafka.cache import ReplyCache
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import CLUSTER, Operation, Resource, ResourceKind
from tailrace.model.session import ANONYMOUS, EMBEDDED, INTERNAL, Principal, Session
from tailrace.security.acl import Acls
from tailrace.wire.kafka import FETCH, read_fetch_response
from tailrace.wire.native import MessageType

DEADLINE_S = 60.0
ORDERS = Resource(ResourceKind.TOPIC, TOPIC)
READ_TOPIC, READ_SUBSCRIPTION = on_topic(Operation.READ)[0], on_subscription(Operation.READ)[0]


def play(directory: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(directory) as here:
            await asyncio.wait_for(scenario(here), DEADLINE_S)

    asyncio.run(main())


def publish(here: World, body: bytes) -> None:
    partition = here.node.broker.topics.find_partition(TopicPartition(TOPIC, 0))
    assert partition is not None
    here.node.broker.publisher.publish(partition, [NewMessage(None, body)])


def test_a_fetch_that_waits_is_refused_when_its_entry_goes(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        await here.allow(READ_TOPIC)
        partition = here.node.broker.topics.find_partition(TopicPartition(TOPIC, 0))
        assert partition is not None
        before = len(partition.waiters)
        number = here.kafka.send(FETCH, 12, kafka_rig.fetch_body({0: 0}, max_wait_ms=50_000))
        while len(partition.waiters) == before:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.001)
        await here.allow()
        publish(here, b"secret")
        found, body = await here.kafka.receive(FETCH, 12)
        answer = read_fetch_response(body, 12)
        ((_, (result,)),) = answer.topics
        assert (found, result.error_code) == (number, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert b"secret" not in bytes(body)

    play(tmp_path, scenario)


@pytest.mark.parametrize("kept", [READ_TOPIC, READ_SUBSCRIPTION])
def test_a_member_is_pushed_nothing_more_when_one_of_its_entries_goes(tmp_path: Path, kept: object) -> None:
    async def scenario(here: World) -> None:
        await here.allow(READ_TOPIC, READ_SUBSCRIPTION)
        await here.native.ask(MessageType.SUBSCRIBE, _subscription=SUBSCRIPTION, _credit=10)
        publish(here, b"first")
        assert bytes((await here.native.data()).body) == b"first"
        assert kept in (READ_TOPIC, READ_SUBSCRIPTION)
        await here.allow(READ_TOPIC if kept is READ_TOPIC else READ_SUBSCRIPTION)
        publish(here, b"secret")
        frame = await here.native.receive()
        assert frame.type == MessageType.NOTICE and frame.properties["_event"] == "revoked"
        assert "may not read" in frame.properties["_reason"]
        assert not here.node.broker.subscriptions.known(SUBSCRIPTION).members

    play(tmp_path, scenario)


def test_a_tail_ends_when_its_entry_goes(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        await here.allow(READ_TOPIC)
        seen = ""
        async with connect(f"ws://{here.node.http_address}/api/v1/topics/{TOPIC}/tail") as tail:
            publish(here, b"first")
            while "first" not in seen:
                seen += str(await tail.recv())
            await here.allow()
            publish(here, b"secret")
            with suppress(ConnectionClosed):
                while True:  # until the broker closes it
                    seen += str(await tail.recv())
        assert "secret" not in seen

    play(tmp_path, scenario)


# ---- who is asked, and what is told


def test_only_the_program_and_the_broker_itself_need_no_entry() -> None:
    rule = allow_by_acls(Acls(), super_users=[Principal("User", "admin")], among=allow_everything)
    assert rule(INTERNAL, Operation.READ, ORDERS) and rule(EMBEDDED, Operation.ALTER, CLUSTER)
    for listener in ("internal", "embedded"):  # names that a listener may be given
        for principal in (ANONYMOUS, INTERNAL.principal):
            session = Session(principal=principal, listener=listener)
            assert not rule(session, Operation.READ, ORDERS)
    assert not rule(replace(INTERNAL), Operation.READ, ORDERS)
    assert rule(Session(principal=Principal("User", "admin"), listener="kafka"), Operation.READ, ORDERS)
    assert not rule(Session(principal=Principal("Group", "admin"), listener="kafka"), Operation.READ, ORDERS)


def test_a_super_user_that_may_not_act_any_more_is_refused() -> None:
    rule = allow_by_acls(Acls(), super_users=[Principal("User", "admin")], among=lambda *_: False)
    assert not rule(Session(principal=Principal("User", "admin"), listener="kafka"), Operation.READ, ORDERS)


@pytest.mark.parametrize(
    ("operation", "resource", "command"),
    [
        (Operation.READ, ORDERS, "--operation read --topic orders"),
        (Operation.ALTER, CLUSTER, "--operation alter --cluster"),
        (
            Operation.TWO_PHASE_COMMIT,
            Resource(ResourceKind.TRANSACTIONAL_ID, "a b; rm"),
            "--operation two_phase_commit --transactional-id 'a b; rm'",
        ),
    ],
)
def test_the_command_that_grants(operation: Operation, resource: Resource, command: str) -> None:
    found = granting_command(Principal("User", "alice"), operation, resource)
    assert found == f"tailrace acl add --allow User:alice {command}"


def test_kept_replies_have_a_most() -> None:
    replies = ReplyCache()
    for number in range(10_000):
        replies.put(1, number, b"x", request_bytes=1)
    assert len(replies._replies) <= 4096
    assert replies.get(1, 9_999) == b"x"
