"""AUTH: what a native client sends to log in, and what is answered before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.native.rig import TOPIC, Client, Refused, Rig, play

from tailrace.model import ErrorCode
from tailrace.model.address import Address
from tailrace.native import NativeListener
from tailrace.net.logins import Logins, PendingLogins
from tailrace.security import PLAIN, SCRAM_SHA_256, Authenticator, Secret
from tailrace.security.sasl.plain import write_plain
from tailrace.security.sasl.scram_client import ScramClient
from tailrace.wire.native import MessageType

AUTH, HEARTBEAT = MessageType.AUTH, MessageType.HEARTBEAT
PASSWORD = Secret("open-sesame-42")
OTHERS = [each for each in MessageType if each not in (AUTH, HEARTBEAT)]


@asynccontextmanager
async def secured(rig: Rig, *, timeout_s: float = 3600.0) -> AsyncIterator[Client]:
    """A client of a listener that asks for logins."""
    await rig.broker.users.create("alice", PASSWORD)
    logins = Logins(
        authenticator=Authenticator(rig.broker.users, monotonic=time.monotonic),
        mechanisms=(SCRAM_SHA_256, PLAIN),
        pending=PendingLogins(),
        timeout_s=timeout_s,
    )
    listener = NativeListener(rig.broker.gate, addresses=[Address("127.0.0.1", 0)], logins=logins)
    await listener.start()
    try:
        client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
        rig.clients.append(client)
        yield client
    finally:
        await listener.close()


def test_a_client_logs_in_by_scram_and_is_served() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            greeting = await client.ask(HEARTBEAT)
            assert "_version" not in greeting.properties
            scram = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
            challenge = await client.ask(AUTH, scram.first(), _mechanism=SCRAM_SHA_256)
            assert "_user" not in challenge.properties
            final = await client.ask(AUTH, scram.prove(bytes(challenge.body)))
            scram.check(bytes(final.body))
            assert final.properties == {"_user": "alice"}
            assert "_version" in (await client.ask(HEARTBEAT)).properties
            await client.publish(b"x")
            with pytest.raises(Refused, match="has logged in"):
                await client.ask(AUTH, write_plain("alice", PASSWORD), _mechanism=PLAIN)

    play(scenario)


def test_a_client_logs_in_by_a_password() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            done = await client.ask(AUTH, write_plain("alice", PASSWORD), _mechanism=PLAIN)
            assert done.properties == {"_user": "alice"}
            await client.publish(b"x")

    play(scenario)


@pytest.mark.parametrize("kind", OTHERS, ids=lambda each: each.name)
def test_nothing_else_is_answered_before_the_login(kind: MessageType) -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            with pytest.raises(Refused, match="needs a login") as caught:
                await client.ask(kind, b"x", _topic=TOPIC)
            assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.wait_closed() == []

    play(scenario)


def test_a_heartbeat_that_asks_for_more_needs_a_login() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            with pytest.raises(Refused, match="needs a login"):
                await client.ask(HEARTBEAT, _producer="new")

    play(scenario)


def test_what_is_sent_behind_a_login_that_fails_is_not_taken() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        async with secured(rig) as client:
            auth = client.send(AUTH, write_plain("alice", Secret("wrong")), _mechanism=PLAIN)
            client.send(MessageType.PUBLISH, b"x", _topic=TOPIC)
            with pytest.raises(Refused, match="the user name or the password is wrong"):
                await client.reply(auth)
            assert await client.wait_closed() == []
            assert rig.partition(TOPIC, 0).high_watermark == 0

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "text"),
    [({"_mechanism": "GSSAPI"}, "is not offered"), ({}, "names its _mechanism")],
)
def test_a_login_that_cannot_begin_is_refused(properties: dict[str, str], text: str) -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            with pytest.raises(Refused, match=text):
                await client.ask(AUTH, b"x", **properties)
            assert await client.wait_closed() == []

    play(scenario)


def test_a_client_that_does_not_log_in_in_time_is_let_go() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig, timeout_s=0.05) as client:
            assert await client.wait_closed() == []

    play(scenario)


def test_a_large_frame_before_the_login_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        async with secured(rig) as client:
            client.send(AUTH, b"x" * 70_000, _mechanism=PLAIN)
            frames = await client.wait_closed()
            assert [each.type for each in frames] == [MessageType.ERROR]

    play(scenario)
