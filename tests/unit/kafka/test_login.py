"""Connections without a login: how long, how many, and what becomes of them. Logins by real clients are in
tests/interop/test_login.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.unit.kafka.rig import TOPIC, Client, Rig, play

from tailrace.kafka import KafkaListener
from tailrace.model import TopicPartition
from tailrace.model.address import Address
from tailrace.net.logins import Logins, PendingLogins
from tailrace.security import PLAIN, Authenticator, Secret
from tailrace.security.sasl.plain import write_plain
from tailrace.wire.kafka.messages.metadata import MetadataRequest
from tailrace.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
PASSWORD = Secret("open-sesame-42")
NEVER_S = 3600.0


@asynccontextmanager
async def secured(
    rig: Rig, pending: PendingLogins, *, timeout_s: float = NEVER_S, mechanisms: Sequence[str] = (PLAIN,)
) -> AsyncIterator[KafkaListener]:
    """A listener beside that of the rig, which asks for logins."""
    await rig.broker.users.create("alice", PASSWORD)
    logins = Logins(
        authenticator=Authenticator(rig.broker.users, monotonic=time.monotonic),
        mechanisms=mechanisms,
        pending=pending,
        timeout_s=timeout_s,
    )
    listener = KafkaListener(
        rig.broker.gate, addresses=[Address("127.0.0.1", 0)], name="secured", logins=logins
    )
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()


async def connect(rig: Rig, listener: KafkaListener) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
    rig.clients.append(client)
    return client


async def log_in(client: Client, password: Secret = PASSWORD) -> int:
    await client.ask(HANDSHAKE, SaslHandshakeRequest(mechanism=PLAIN))
    message = write_plain("alice", password)
    answer = await client.ask(AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message))
    return int(answer.error_code)


def test_a_connection_that_does_not_log_in_in_time_is_closed() -> None:
    async def scenario(rig: Rig) -> None:
        pending = PendingLogins()
        async with secured(rig, pending, timeout_s=0.05) as listener:
            client = await connect(rig, listener)
            assert await client.wait_closed() == b""
            await rig.wait_until(lambda: not len(pending))

    play(scenario)


def test_a_client_that_goes_on_with_handshakes_has_no_more_time() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig, PendingLogins(), timeout_s=0.2) as listener:
            client = await connect(rig, listener)

            async def go_on() -> None:
                while True:
                    await client.ask(HANDSHAKE, SaslHandshakeRequest(mechanism=PLAIN))

            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await go_on()

    play(scenario)


def test_a_login_ends_the_wait_and_makes_room_for_another() -> None:
    async def scenario(rig: Rig) -> None:
        pending = PendingLogins(total_max=1)
        async with secured(rig, pending) as listener:
            first = await connect(rig, listener)
            await rig.wait_until(lambda: len(pending) == 1)
            second = await connect(rig, listener)
            assert await second.wait_closed() == b""
            assert await log_in(first) == 0
            assert not len(pending)
            third = await connect(rig, listener)
            assert await log_in(third) == 0
            assert (await first.ask(METADATA, MetadataRequest())).brokers

    play(scenario)


def test_one_address_has_a_bound_of_its_own() -> None:
    pending = PendingLogins(total_max=10, per_address_max=2)
    assert [pending.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert pending.enter("10.0.0.2")
    assert all(pending.enter("unix:/run/tailrace.sock") for _ in range(3))  # who is there is not known
    pending.leave("10.0.0.1")
    assert pending.enter("10.0.0.1")
    assert len(pending) == 6


def test_a_failed_login_is_answered_and_then_the_connection_ends() -> None:
    async def scenario(rig: Rig) -> None:
        pending = PendingLogins()
        async with secured(rig, pending) as listener:
            client = await connect(rig, listener)
            assert await log_in(client, Secret("wrong")) == 58
            assert await client.wait_closed() == b""
            await rig.wait_until(lambda: not len(pending))

    play(scenario)


def test_sessions_carry_who_logged_in_and_end_with_the_user() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig, PendingLogins()) as listener:
            client = await connect(rig, listener)
            assert await log_in(client) == 0
            (connection,) = listener.connections
            session = connection.session
            assert (str(session.principal), session.mechanism, session.listener) == (
                "User:alice",
                PLAIN,
                "secured",
            )
            anonymous = await rig.connect()
            assert (await anonymous.ask(METADATA, MetadataRequest())).brokers
            listener.end_sessions(session.principal)
            assert await client.wait_closed() == b""
            assert (await anonymous.ask(METADATA, MetadataRequest())).brokers

    play(scenario)


def test_a_disabled_user_may_do_nothing_with_a_session_that_is_left() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig, PendingLogins()) as listener:
            client = await connect(rig, listener)
            assert await log_in(client) == 0
            (connection,) = listener.connections
            version = connection.access.version
            await rig.broker.users.set_enabled("alice", enabled=False)
            assert connection.access.version != version  # what is kept open asks again
            with pytest.raises(Exception, match="may not read"):
                connection.access.readable(TopicPartition(TOPIC, 0))

    play(scenario)
