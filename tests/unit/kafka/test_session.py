"""Sessions over real connections: one for each, and what Produce and Fetch ask the rule with it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.kafka.rig import TOPIC, Rig, batch, only, play, produce_body

from tailrace.broker import NewTopic
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.model.session import ANONYMOUS, Session
from tailrace.wire.kafka import PRODUCE, read_produce_response


class Rule:
    """Refuses some operations, and notes what it is asked."""

    def __init__(self, *refused: Operation) -> None:
        self.refused = refused
        self.asked: list[tuple[Session, Operation, Resource]] = []

    def __call__(self, session: Session, operation: Operation, resource: Resource) -> bool:
        self.asked.append((session, operation, resource))
        return operation not in self.refused


def test_a_client_that_may_not_write_reads_and_does_not_write() -> None:
    rule = Rule(Operation.WRITE)

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(2):  # the second request has the shape of the first
            result = await client.produce(batch())
            assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert rig.log().end_offset == 0
        assert only(await client.fetch({0: 0})).error_code == 0

    play(scenario, authorize=rule)


def test_a_client_that_may_not_read_writes_and_does_not_read() -> None:
    rule = Rule(Operation.READ)

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert (await client.produce(batch())).error_code == 0
        result = only(await client.fetch({0: 0}, max_wait_ms=25_000))
        assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not result.records

    play(scenario, authorize=rule)


def test_a_write_without_acks_that_is_refused_closes_the_connection() -> None:
    rule = Rule(Operation.WRITE)

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.send(PRODUCE, 9, produce_body({0: batch()}, acks=0))
        assert await client.wait_closed() == b""

    play(scenario, authorize=rule)


def test_a_session_says_where_the_client_is_and_that_it_did_not_authenticate() -> None:
    rule = Rule()

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch())
        ((session, operation, resource),) = rule.asked
        assert (session.host, session.listener, session.principal) == ("127.0.0.1", "kafka", ANONYMOUS)
        assert (operation, resource) == (Operation.WRITE, Resource(ResourceKind.TOPIC, TOPIC))
        assert rig.connection_of(client).access.session is session

    play(scenario, authorize=rule)


@pytest.mark.parametrize("uses", ["produce", "fetch"])
def test_the_rule_is_asked_once_per_connection_until_a_topic_changes(uses: str) -> None:
    rule = Rule()

    async def scenario(rig: Rig) -> None:
        async def use() -> None:
            if uses == "produce":
                await client.produce(batch())
            else:
                await client.fetch({0: 0})

        for connections in (1, 2):
            client = await rig.connect()
            for _ in range(3):
                await use()
            assert len(rule.asked) == connections
        await rig.broker.topics.create(NewTopic(name="another"))
        await use()
        assert len(rule.asked) == 3

    play(scenario, authorize=rule)


def test_a_fetch_that_waits_is_refused_when_the_right_goes() -> None:
    rule = Rule()

    async def scenario(rig: Rig) -> None:
        client, other = await rig.connect(), await rig.connect()
        assert (await client.produce(batch())).error_code == 0
        waiting = asyncio.ensure_future(client.fetch({0: 1}, max_wait_ms=25_000))
        await rig.wait_until(lambda: len(rig.broker.topics.get(TOPIC).partitions[0].waiters) > 0)  # type: ignore[union-attr]
        rule.refused = (Operation.READ,)
        rig.broker.topics.rights_changed()
        assert (await other.produce(batch())).error_code == 0
        result = only(await waiting)
        assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not result.records

    play(scenario, authorize=rule)


@pytest.mark.parametrize("name", ["no/slash", "", "x" * 250, ".."])
def test_an_illegal_name_is_an_unknown_topic_to_who_reads_or_writes_partitions(name: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for version in range(3, 10):
            body = produce_body({0: batch()}, version=version, topic=name)
            answer = read_produce_response(await client.call(PRODUCE, version, body), version)
            ((_, (result,)),) = answer.topics
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for version in (4, 11, 12):
            fetched = only(await client.fetch({0: 0}, topic=name, version=version, max_wait_ms=0))
            assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)
