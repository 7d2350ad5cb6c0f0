"""Large requests: served a few at a time, in order; small ones pass, and who ends gives up its place."""

from __future__ import annotations

import pytest
from tests.unit.kafka.rig import Rig, batch, play, produce_body

from tailrace.kafka import KafkaConfig
from tailrace.wire.kafka import PRODUCE, encode, read_produce_response
from tailrace.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.wire.kafka.messages.metadata import MetadataRequest

METADATA, JOIN_GROUP = 3, 11
both_loops = pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])


def metadata_body() -> bytes:
    return encode(MetadataRequest(topics=[]), 9)


LARGE = batch(b"v" * 70_000)
ONE_LARGE = KafkaConfig(large_requests_bytes_max=100_000)


@both_loops
def test_large_requests_wait_for_each_other_and_small_ones_come_in_between(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        first, second, small = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        later = second.send(PRODUCE, 9, produce_body({0: LARGE}))
        behind = second.send(METADATA, 9, metadata_body())
        await rig.wait_until(lambda: rig.connection_of(second).is_crowded_out)
        assert (await small.produce(batch(), partition=1)).error_code == 0
        assert rig.log(0).end_offset == 1
        rig.log(0).settle(1)
        await first.receive(PRODUCE, 9)
        await rig.wait_until(lambda: rig.log(0).end_offset == 2)
        rig.log(0).settle()
        assert (await second.receive(PRODUCE, 9))[0] == later
        assert (await second.receive(METADATA, 9))[0] == behind
        assert rig.listener.budget.used == 0

    play(scenario, config=ONE_LARGE, uv=uv)


def test_a_connection_that_ends_while_others_large_requests_are_served_gives_up_its_place() -> None:
    async def scenario(rig: Rig) -> None:
        first, second, third = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        for client in (second, third):
            client.send(PRODUCE, 9, produce_body({1: LARGE}))
            await rig.wait_until(lambda client=client: rig.connection_of(client).is_crowded_out)  # type: ignore[misc]
        rig.connection_of(second).abort()
        await rig.wait_until(lambda: len(rig.listener.connections) == 2)
        rig.log(0).settle()
        await third.receive(PRODUCE, 9)
        assert rig.log(1).end_offset == 1
        await first.receive(PRODUCE, 9)
        assert rig.listener.budget.used == 0

    play(scenario, config=ONE_LARGE)


@both_loops
def test_what_waits_is_not_written_over_by_what_others_send(uv: bool) -> None:
    """Where the owner calls large what fits into the buffer that all connections receive into."""

    async def scenario(rig: Rig) -> None:
        first, second, small = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: batch(b"a" * 5000)}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        second.send(PRODUCE, 9, produce_body({1: batch(b"b" * 5000)}))
        await rig.wait_until(lambda: rig.connection_of(second).is_crowded_out)
        await small.produce(batch(b"c" * 500), partition=1)
        rig.log(0).settle()
        await first.receive(PRODUCE, 9)
        _, answer = await second.receive(PRODUCE, 9)
        ((_, (result,)),) = read_produce_response(answer, 9).topics
        assert (result.error_code, result.base_offset) == (0, 1)

    play(scenario, config=KafkaConfig(small_request_bytes=1000, large_requests_bytes_max=6000), uv=uv)


def test_a_request_larger_than_the_bound_is_served_alone() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(2):
            assert (await client.produce(batch(b"v" * 200_000))).error_code == 0
        assert rig.listener.budget.used == 0

    play(scenario, config=ONE_LARGE)


def test_members_with_large_metadata_do_not_keep_large_batches_waiting() -> None:
    async def scenario(rig: Rig) -> None:
        member, producer = await rig.connect(), await rig.connect()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 90_000)]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        member.send(JOIN_GROUP, 3, encode(request, 3))
        await rig.wait_until(lambda: len(rig.broker.groups._parked) == 1)
        assert (await producer.produce(LARGE)).error_code == 0
        await rig.broker.groups.close()

    play(scenario, config=ONE_LARGE, values={"group.initial.rebalance.delay.ms": "60000"})


def test_a_connection_that_ends_after_it_was_admitted_gives_back_what_it_took() -> None:
    """Something else held it: it was about to be served, and never was."""

    async def scenario(rig: Rig) -> None:
        first, second, third = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        second.send(PRODUCE, 9, produce_body({1: LARGE}))
        await rig.wait_until(lambda: rig.connection_of(second).is_crowded_out)
        rig.connection_of(second).pause_writing()
        rig.log(0).settle()
        await first.receive(PRODUCE, 9)
        await rig.wait_until(lambda: not rig.connection_of(second).is_crowded_out)
        rig.connection_of(second).abort()
        await rig.wait_until(lambda: len(rig.listener.connections) == 2)
        assert (await third.produce(LARGE, partition=1)).error_code == 0
        assert rig.log(1).end_offset == 1
        assert rig.listener.budget.used == 0

    play(scenario, config=ONE_LARGE)


def test_on_a_disk_that_syncs_slowly_more_large_requests_are_served_at_a_time() -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(6)]
        rig.broker.storage.counters.round_s = 0.4
        rig.log(0).hold()
        for client in clients:
            client.send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: sum(rig.connection_of(each).is_crowded_out for each in clients) == 1)
        assert rig.log(0).end_offset == 5, "five of 70 KB are within the bound for a slow disk"
        rig.broker.storage.counters.round_s = 0.001  # it is quick again, and the bound what it was
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.log(0).end_offset == 6)
        clients[0].send(PRODUCE, 9, produce_body({0: LARGE}))
        clients[1].send(PRODUCE, 9, produce_body({0: LARGE}))
        clients[2].send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: rig.listener.service.large.used >= 4 * len(LARGE))
        clients[3].send(PRODUCE, 9, produce_body({0: LARGE}))
        clients[4].send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: rig.connection_of(clients[4]).is_crowded_out)
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.log(0).end_offset == 11)
        rig.log(0).settle()
        for client in clients:
            await client.receive(PRODUCE, 9)
        for client in clients[:5]:
            await client.receive(PRODUCE, 9)
        rig.log(0).hold()
        clients[0].send(PRODUCE, 9, produce_body({0: LARGE}))
        clients[1].send(PRODUCE, 9, produce_body({0: LARGE}))
        await rig.wait_until(lambda: any(rig.connection_of(each).is_crowded_out for each in clients))
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.log(0).end_offset == 13)
        rig.log(0).settle()
        for client in clients[:2]:
            await client.receive(PRODUCE, 9)
        assert rig.listener.budget.used == 0 and rig.listener.service.large.used == 0

    config = KafkaConfig(large_requests_bytes_max=100_000, large_requests_bytes_slow_max=400_000)
    play(scenario, config=config)
