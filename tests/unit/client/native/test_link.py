"""Connecting, coming back, heartbeats and requests of AsyncClient, against a scripted listener."""

from __future__ import annotations

import asyncio
import random
from itertools import islice, pairwise

import pytest
from tests import unhurried
from tests.port import refusing_port
from tests.unit.client.native.conftest import QUICK, FakeListener, M, Peer, run

from tailrace.client.async_client import AsyncClient
from tailrace.client.error import CannotConnect, ClientClosed, TimedOut
from tailrace.client.native.error import BrokerGone, BrokerUnreachable
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.status import Status
from tailrace.model import BrokerError, ConfigError, ErrorCode, ProtocolError
from tailrace.wire.native import Frame, write_frame

# ---- the policy


def test_delays_grow_at_random_between_their_bounds() -> None:
    policy = Reconnect(delay_s_min=0.05, delay_s_max=5.0)
    delays = list(islice(policy.delays(random.Random(7)), 200))
    assert all(0.05 <= delay <= 5.0 for delay in delays)
    assert delays[0] <= 0.15
    assert max(delays) == 5.0
    assert all(after <= max(0.15, before * 3) for before, after in pairwise(delays))
    assert delays[:50] != list(islice(policy.delays(random.Random(8)), 50))


def test_attempts_may_be_bounded() -> None:
    assert len(list(Reconnect(attempts_max=3).delays())) == 3


@pytest.mark.parametrize(
    "settings", [{"delay_s_min": 0.0}, {"delay_s_min": 2.0, "delay_s_max": 1.0}, {"attempts_max": 0}]
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="reconnect"):
        Reconnect(**settings)  # type: ignore[arg-type]


# ---- connecting


def test_the_hello_names_the_client_and_asks_for_a_producer() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(client_id="me", heartbeat_interval_s=7) as client:
            assert client.status is Status.CONNECTED
        (hello,) = listener.of(M.HEARTBEAT)
        assert hello.properties == {"_client_id": "me", "_heartbeat_ms": "7000", "_producer": "new"}

    run(test)


def test_nobody_there_and_no_policy_names_the_address_and_the_way_out() -> None:
    async def main(port: int) -> None:
        client = AsyncClient("127.0.0.1", port, reconnect=None)
        with pytest.raises(ConnectionError, match=f"127.0.0.1:{port} .*Try: tailrace up"):
            await client.connect()
        assert client.status is Status.CLOSED
        with pytest.raises(ClientClosed, match=r"connect\(\)"):
            await client.publish("t", b"x")

    with refusing_port() as port:
        unhurried.run(main(port))


def test_nobody_there_is_an_error_at_once() -> None:
    async def main(port: int) -> None:
        waits: list[Status] = []
        client = AsyncClient("127.0.0.1", port, on_status=waits.append)
        with pytest.raises(BrokerUnreachable, match="connection refused"):
            async with asyncio.timeout(15):  # half of what a request may take
                await client.connect()
        assert waits == [Status.CONNECTING, Status.CLOSED]

    with refusing_port() as port:
        unhurried.run(main(port))


def test_nobody_there_is_tried_until_the_connect_timeout() -> None:
    async def main(port: int) -> None:
        began = asyncio.get_running_loop().time()
        client = AsyncClient("127.0.0.1", port, reconnect=QUICK, connect_timeout_s=0.2)
        with pytest.raises(BrokerUnreachable):
            await client.connect()
        assert asyncio.get_running_loop().time() - began > 0.1

    with refusing_port() as port:
        unhurried.run(main(port))


def test_a_connect_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="connect_timeout_s = 0 must be above 0"):
        AsyncClient(connect_timeout_s=0)


def test_a_broker_that_comes_late_is_waited_for() -> None:
    async def main(port: int) -> None:
        listener = FakeListener()
        listener.port = port
        client = listener.client(connect_timeout_s=30)
        connecting = asyncio.ensure_future(client.connect())
        await listener.open()
        await connecting
        assert client.status is Status.CONNECTED
        await client.disconnect()
        await listener.close()

    with refusing_port() as port:
        unhurried.run(main(port))


def test_a_port_that_says_nothing_is_given_up_in_time() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.HEARTBEAT] = lambda peer, frame: None
        with pytest.raises(TimeoutError, match="no answer within"):
            await listener.client(reconnect=None, request_timeout_s=0.05).connect()
        await listener.until(lambda: listener.peer.lost.is_set())

    run(test)


def test_a_port_that_speaks_something_else_is_said_so() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.HEARTBEAT] = lambda peer, _: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(CannotConnect, match="Is this the native port"):
            await listener.client(reconnect=None).connect()

    run(test)


def test_a_refused_hello_is_told() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.HEARTBEAT] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.SASL_AUTHENTICATION_FAILED, "who are you"
        )
        with pytest.raises(BrokerError, match="who are you"):
            await listener.client().connect()

    run(test)


@pytest.mark.parametrize("name", ["request_timeout_s", "publish_timeout_s", "in_flight_max"])
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = 0 must be above 0"):
        AsyncClient(**{name: 0})  # type: ignore[arg-type]


def test_a_client_can_be_used_again_after_disconnect() -> None:
    async def test(listener: FakeListener) -> None:
        client = listener.client()
        for _ in range(2):
            await client.connect()
            await client.connect()  # nothing more
            await client.publish("t", b"x")
            await client.disconnect()
            await client.disconnect()
            assert client.status is Status.CLOSED
        assert len(listener.peers) == 2

    run(test)


# ---- coming back


def test_connecting_twice_at_once_opens_one_connection() -> None:
    async def test(listener: FakeListener) -> None:
        client = listener.client()
        await asyncio.gather(client.connect(), client.connect())
        await client.describe_topics()
        assert len(listener.peers) == 1
        await client.disconnect()

    run(test)


def test_the_status_follows_the_connection_and_is_told() -> None:
    async def test(listener: FakeListener) -> None:
        told: list[Status] = []
        async with listener.client(on_status=told.append) as client:
            listener.peer.drop()
            await listener.until(lambda: len(listener.of(M.HEARTBEAT)) == 2)
            await client.describe_topics()
        assert told == ["connecting", "connected", "reconnecting", "connected", "closed"]
        assert "_producer" not in listener.of(M.HEARTBEAT)[1].properties

    run(test)


def test_a_status_callback_that_fails_does_not_stop_the_client(caplog: pytest.LogCaptureFixture) -> None:
    def fail(status: Status) -> None:
        raise ValueError(status)

    async def test(listener: FakeListener) -> None:
        async with listener.client(on_status=fail) as client:
            await client.publish("t", b"x")

    run(test)
    assert "on_status failed" in caplog.text


def test_a_policy_that_runs_out_ends_the_client() -> None:
    async def test(listener: FakeListener) -> None:
        closed = asyncio.Event()

        def told(status: Status) -> None:
            if status is Status.CLOSED:
                closed.set()

        policy = Reconnect(delay_s_min=0.001, delay_s_max=0.002, attempts_max=2)
        client = listener.client(reconnect=policy, on_status=told)
        await client.connect()
        await listener.close()
        await closed.wait()
        with pytest.raises(BrokerGone, match="gave up after 2 attempts"):
            await client.describe_topics()
        await client.disconnect()
        await listener.open()

    run(test)


def test_a_request_is_made_again_after_a_lost_connection() -> None:
    async def test(listener: FakeListener) -> None:
        def drop_once(peer: Peer, frame: Frame) -> None:
            listener.on[M.DESCRIBE] = listener.describe
            peer.drop()

        listener.on[M.DESCRIBE] = drop_once
        async with listener.client() as client:
            assert (await client.describe_subscriptions())["what"] == "subscriptions"
        assert len(listener.of(M.DESCRIBE)) == 2

    run(test)


def test_a_request_that_must_not_be_carried_out_twice_is_not_repeated() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.REDRIVE] = lambda peer, _: peer.drop()
        async with listener.client() as client:
            with pytest.raises(BrokerGone):
                await client.redrive("s", 5)
        assert len(listener.of(M.REDRIVE)) == 1

    run(test)


def test_a_request_refused_for_now_is_made_again() -> None:
    async def test(listener: FakeListener) -> None:
        def refuse_once(peer: Peer, frame: Frame) -> None:
            listener.on[M.DESCRIBE] = listener.describe
            peer.refuse(frame, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, retriable=True)

        listener.on[M.DESCRIBE] = refuse_once
        async with listener.client() as client:
            await client.describe_topics()
        assert len(listener.of(M.DESCRIBE)) == 2

    run(test)


def test_a_request_without_an_answer_times_out_and_a_late_answer_harms_nothing() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[Frame] = []
        listener.on[M.DESCRIBE] = lambda _, frame: held.append(frame)
        async with listener.client(request_timeout_s=0.1) as client:
            with pytest.raises(TimedOut, match=r"did not answer DESCRIBE within 0\.1 s"):
                await client.describe_topics()
            listener.peer.reply(held[0])
            await client.create_topic("u")
            assert len(listener.peers) == 1

    run(test)


def test_requests_of_a_client_that_is_closed_meanwhile_end() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.DESCRIBE] = lambda peer, frame: None
        client = listener.client()
        await client.connect()
        asking = asyncio.ensure_future(client.describe_topics())
        await listener.got(M.DESCRIBE)
        await client.disconnect()
        with pytest.raises((ClientClosed, BrokerGone)):
            await asking

    run(test)


# ---- the stream


def test_replies_are_read_byte_by_byte() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:

            def reply_slowly(peer: Peer, frame: Frame) -> None:
                data = write_frame(M.ACK, sequence=frame.sequence, body=b'{"a": 1}')
                loop = asyncio.get_running_loop()
                for at in range(len(data)):
                    loop.call_later(at / 1000, peer.send, data[at : at + 1])

            listener.on[M.DESCRIBE] = reply_slowly
            assert await client.describe_topics() == {"a": 1}

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        write_frame(M.ACK, sequence=77),
        write_frame(M.SUBSCRIBE, sequence=1),
        write_frame(M.DATA, sequence=1, properties={"_pull": "9"}),
        write_frame(M.DATA, sequence=1, properties={"_pull": "nine"}),
        write_frame(M.DATA, sequence=1, properties={"_subscription": "s"}),
        b"\xff\xff\xff\xff",
        b"\0\0\0\x01\0",
    ],
)
def test_a_broker_that_breaks_the_protocol_is_left_and_reached_anew(data: bytes) -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.subscribe_to_subscription("s")
            listener.peer.send(data)
            await listener.until(lambda: len(listener.peers) == 2)
            await client.describe_topics()

    run(test)


def test_the_last_word_of_a_broker_is_told() -> None:
    async def test(listener: FakeListener) -> None:
        def last_word(peer: Peer, frame: Frame) -> None:
            peer.refuse(Frame(M.ERROR, 0, 0, {}, b""), ErrorCode.INVALID_REQUEST, "your frame is broken")

        listener.on[M.DESCRIBE] = last_word
        async with listener.client(reconnect=None) as client:
            with pytest.raises(ProtocolError, match="your frame is broken"):
                await client.describe_topics()

    run(test)


def test_json_that_is_none_is_an_error_and_the_client_goes_on() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.DESCRIBE] = lambda peer, frame: peer.reply(frame, body=b"{")
        async with listener.client() as client:
            with pytest.raises(ProtocolError, match="not JSON"):
                await client.describe_topics()
            await client.create_topic("u")

    run(test)


# ---- life


def test_a_quiet_client_sends_heartbeats() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(heartbeat_interval_s=0.02):
            await listener.until(lambda: sum(f.sequence == 0 for f in listener.peer.frames) >= 3)
        beats = [frame for frame in listener.peer.frames if not frame.sequence]
        assert {frame.type for frame in beats} == {M.HEARTBEAT}

    run(test)


def test_an_impatient_broker_gets_its_heartbeats_in_time() -> None:
    async def test(listener: FakeListener) -> None:
        listener.hello["_dead_after_ms"] = "60"
        async with listener.client(heartbeat_interval_s=30):
            await listener.until(lambda: sum(f.sequence == 0 for f in listener.peer.frames) >= 2)

    run(test)


def test_a_silent_broker_is_taken_for_dead() -> None:
    async def test(listener: FakeListener) -> None:
        listener.hello["_heartbeat_ms"] = "20"
        async with listener.client(reconnect=None) as client:
            listener.on[M.DESCRIBE] = lambda peer, frame: None
            with pytest.raises(BrokerGone, match=r"has said nothing for 0\.06 s"):
                await client.describe_topics()

    run(test)


def test_a_broker_that_sends_heartbeats_is_alive() -> None:
    async def test(listener: FakeListener) -> None:
        listener.hello["_heartbeat_ms"] = "50"
        listener.on[M.DESCRIBE] = lambda peer, frame: None
        async with listener.client(reconnect=None, request_timeout_s=0.4) as client:

            async def beat() -> None:
                while True:
                    listener.peer.send(write_frame(M.HEARTBEAT))
                    await asyncio.sleep(0.02)

            beating = asyncio.ensure_future(beat())
            with pytest.raises(TimedOut):
                await client.describe_topics()
            beating.cancel()
            assert client.status is Status.CONNECTED

    run(test)
