"""BrokerClient against a scripted listener in another thread: many threads, busy handlers, Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.native.conftest import PATIENCE_S, QUICK, FakeListener, M, Peer, listener_in_thread

import tailrace
from tailrace.client import BrokerClient, Message, Reconnect
from tailrace.client.error import ClientClosed, ClientError
from tailrace.client.loop_thread import LoopThread
from tailrace.client.native.blocking import ThreadInbox
from tailrace.client.native.message import AsyncMessage
from tailrace.client.native.status import Status
from tailrace.model import BrokerError, ConfigError, ErrorCode
from tailrace.wire.native import Frame


class Rig:
    """A listener in a thread, seen from a test that blocks."""

    def __init__(self, listener: FakeListener, thread: LoopThread) -> None:
        self.listener = listener
        self.thread = thread

    def client(self, **settings: Any) -> BrokerClient:
        return BrokerClient(
            "127.0.0.1",
            self.listener.port,
            **{"reconnect": QUICK, "request_timeout_s": PATIENCE_S, **settings},
        )

    def do(self, work: Callable[[Peer], None]) -> None:
        async def in_loop() -> None:
            work(self.listener.peer)

        self.thread.call(in_loop())

    def deliver(self, *offsets: int) -> None:
        def deliver_all(peer: Peer) -> None:
            for offset in offsets:
                peer.deliver(offset)

        self.do(deliver_all)

    def until(self, condition: Callable[[], bool]) -> None:
        self.thread.call(self.listener.until(condition))

    def got(self, type: int, count: int = 1) -> list[Frame]:
        return self.thread.call(self.listener.got(type, count))


@pytest.fixture
def rig() -> Any:
    with listener_in_thread() as (listener, thread):
        yield Rig(listener, thread)


def test_the_defaults_are_the_documented_ones() -> None:
    client = BrokerClient()
    assert repr(client).endswith("closed localhost:9999>")
    assert BrokerClient("h", 1, "me", None).client_id == "me"
    assert client.status is Status.CLOSED
    client.disconnect()  # nothing to do


def test_publishing_as_a_newcomer_would(rig: Rig) -> None:
    client = rig.client(client_id="publisher-1")
    client.connect()
    client.create_topic("events")
    client.publish_text("events", "Hello, World!")
    published = client.publish_text("events", "Another message", custom_property="value")
    assert client.topics == {"events": 1}
    client.disconnect()
    assert published.offset == 1
    assert rig.listener.log["events", 0] == [b"Hello, World!", b"Another message"]
    assert rig.listener.properties["events", 0][1] == {"custom_property": "value"}
    assert client.status is Status.CLOSED


def test_subscribing_as_a_newcomer_would(rig: Rig) -> None:
    received: list[str] = []
    client = rig.client(client_id="subscriber-1")
    client.connect()
    client.create_subscription("s", "t", start_offset=0)
    client.subscribe_to_subscription(
        "s", handler=lambda message: received.append(message.body.decode("utf-8"))
    )
    rig.deliver(0, 1, 2)
    rig.until(lambda: len(received) == 3)
    client.unsubscribe_from_subscription("s")
    assert client.cursors == {"s": {0: 2}}
    client.disconnect()
    assert received == ["v", "v", "v"]
    kinds = [frame.type for frame in rig.listener.frames]
    assert kinds.index(M.ACK) < kinds.index(M.UNSUBSCRIBE)


def test_a_call_before_connect_says_what_is_missing() -> None:
    with pytest.raises(ClientClosed, match=r"connect\(\)"):
        BrokerClient().publish_text("t", "x")


def test_nobody_there_and_no_policy_is_a_connection_error() -> None:
    with listener_in_thread() as (listener, _):
        port = listener.port
    client = BrokerClient("127.0.0.1", port, reconnect=None)
    threads = threading.active_count()
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}"):
        client.connect()
    assert threading.active_count() == threads


def test_many_threads_publish_at_the_same_time(rig: Rig) -> None:
    with rig.client() as client, ThreadPoolExecutor(8) as pool:
        published = list(pool.map(lambda n: client.publish("t", b"%d" % n), range(200)))
    assert sorted(each.offset for each in published) == list(range(200))
    assert sorted(rig.listener.log["t", 0]) == sorted(b"%d" % n for n in range(200))


def test_a_handler_may_use_the_client(rig: Rig) -> None:
    with rig.client() as client:

        def handler(message: Message) -> None:
            client.publish("t", b"copy of %d" % message.offset)
            message.ack()

        client.subscribe_to_subscription("s", handler, auto_ack=False)
        rig.deliver(0, 1)
        rig.got(M.ACK, 2)
    assert rig.listener.log["t", 0] == [b"copy of 0", b"copy of 1"]


def test_a_handler_may_leave_its_subscription_and_close_the_client(rig: Rig) -> None:
    client = rig.client()
    client.connect()
    closed = threading.Event()

    def handler(message: Message) -> None:
        client.unsubscribe_from_subscription("s")
        client.disconnect()
        closed.set()

    client.subscribe_to_subscription("s", handler)
    rig.deliver(0)
    assert closed.wait(60)
    assert client.status is Status.CLOSED


def test_a_handler_that_raises_gives_its_message_back(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def handler(message: Message) -> None:
        if message.offset == 1:
            raise SystemExit("no")

    with rig.client() as client:
        client.subscribe_to_subscription("s", handler)
        rig.deliver(0, 1, 2)
        (nack,) = rig.got(M.NACK)
        rig.until(lambda: len(rig.listener.of(M.ACK)) > 0)
    assert nack.properties["_reason"] == "SystemExit: no"
    assert caplog.text.count("handler of s failed") == 1


def test_handlers_run_one_at_a_time_or_as_many_as_asked_for(rig: Rig) -> None:
    together = threading.Barrier(3)
    with rig.client() as client:
        client.subscribe_to_subscription("s", lambda _: together.wait(60), concurrency=3)
        rig.deliver(0, 1, 2)
        rig.got(M.ACK)
    assert not rig.listener.of(M.NACK)


def test_iteration_acknowledges_when_the_next_is_asked_for(rig: Rig) -> None:
    with rig.client() as client:
        subscription = client.subscribe_to_subscription("s")
        rig.deliver(0, 1)
        seen = []
        for message in subscription:
            seen.append(message.offset)
            if message.offset == 1:
                break
        (ack,) = rig.got(M.ACK)
        assert subscription.get(timeout_s=0.01) is None
        subscription.close()
        assert list(subscription) == []
    assert seen == [0, 1]
    assert ack.properties["_offsets"] == "0"


def test_a_subscription_with_a_handler_cannot_be_iterated_over(rig: Rig) -> None:
    with rig.client() as client, client.subscribe("t", print) as subscription:
        assert subscription.name == "t.default"
        with pytest.raises(ClientError, match="has a handler"):
            iter(subscription)


def test_iteration_ends_with_the_reason(rig: Rig) -> None:
    with rig.client(reconnect=None) as client:
        subscription = client.subscribe_to_subscription("s")
        rig.do(lambda peer: peer.drop())
        with pytest.raises(ConnectionError):
            next(subscription)


def test_pulled_messages_are_settled_one_by_one(rig: Rig) -> None:
    def answer(peer: Peer, frame: Frame) -> None:
        for offset in range(3):
            peer.deliver(offset, pull=frame.sequence)
        peer.reply(frame, {"_count": "3"})

    rig.listener.on[M.PULL] = answer
    with rig.client() as client:
        first, second, third = client.pull("s", 3)
        first.ack()
        second.nack(delay_ms=5, reason="later")
        third.extend(100)
        assert (first.is_settled, third.is_settled) == (True, False)
    assert rig.listener.of(M.ACK)[0].properties["_offsets"] == "0"
    assert rig.listener.of(M.NACK)[0].properties["_delay_ms"] == "5"
    assert rig.listener.of(M.EXTEND)[0].properties["_offsets"] == "2"


def test_refusals_and_mistakes_are_errors_and_the_client_goes_on(rig: Rig) -> None:
    rig.listener.on[M.CREATE_SUBSCRIPTION] = lambda peer, frame: peer.refuse(
        frame, ErrorCode.INVALID_CONFIG, "mode = x. Did you mean shared?"
    )
    with rig.client() as client:
        with pytest.raises(BrokerError, match="Did you mean shared") as caught:
            client.create_subscription("s", "t", mode="x")
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(ConfigError, match="has not joined"):
            client.unsubscribe_from_subscription("s")
        with pytest.raises(ConfigError, match="concurrency"):
            client.subscribe_to_subscription("s", concurrency=0)
        client.publish("t", b"x")


def test_subscriptions_survive_a_lost_connection(rig: Rig) -> None:
    received: list[int] = []
    with rig.client() as client:
        client.subscribe_to_subscription("s", lambda message: received.append(message.offset))
        rig.deliver(0)
        rig.got(M.ACK)
        rig.do(lambda peer: peer.drop())
        rig.got(M.SUBSCRIBE, 2)
        rig.deliver(1)
        rig.got(M.ACK, 2)
    assert received == [0, 1]


def test_a_client_cannot_be_closed_by_its_own_callback_and_goes_on(rig: Rig) -> None:
    heard: list[BaseException] = []

    def close(_: Status) -> None:
        try:
            client.disconnect()
        except ClientClosed as error:
            heard.append(error)

    client = rig.client(on_status=close)
    with client:
        assert "its own callbacks" in str(heard[0])
        client.describe_topics()


def test_a_client_can_be_connected_again(rig: Rig) -> None:
    client = rig.client()
    for _ in range(2):
        with client:
            client.publish("t", b"x")
            assert client.status is Status.CONNECTED
    assert len(rig.listener.log["t", 0]) == 2


def test_a_client_that_nobody_holds_any_more_closes_its_connection(rig: Rig) -> None:
    client = rig.client()
    client.connect()
    del client
    gc.collect()
    rig.until(lambda: rig.listener.peer.lost.is_set())


@contextmanager
def ctrl_c_when(moment: threading.Event) -> Iterator[None]:
    """Ctrl-C for the thread that waits, and for nobody else, until it is heard.

    A signal that comes between the last look of the interpreter and the wait itself is one that nobody hears;
    a person would press again. Whatever is pressed after that interrupts nothing.
    """
    main, heard = threading.main_thread().ident, threading.Event()
    assert main is not None

    def hear(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def press() -> None:
        moment.wait()
        while not heard.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            heard.wait(0.02)

    before = signal.signal(signal.SIGINT, hear)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        heard.set()
        moment.set()
        presser.join()
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_interrupts_a_call_that_waits(rig: Rig) -> None:
    asked = threading.Event()
    rig.listener.on[M.DESCRIBE] = lambda peer, frame: asked.set()
    with rig.client() as client:
        with ctrl_c_when(asked):
            client.describe_topics()
        rig.listener.on[M.DESCRIBE] = rig.listener.describe
        assert client.describe_topics()["what"] == "topics"


def test_ctrl_c_interrupts_an_iteration_that_waits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, wait = threading.Event(), ThreadInbox.get

    def get(inbox: ThreadInbox, timeout_s: float | None = None) -> AsyncMessage | None:
        waiting.set()
        return wait(inbox, timeout_s)

    monkeypatch.setattr(ThreadInbox, "get", get)
    with rig.client() as client:
        subscription = client.subscribe_to_subscription("s")
        with ctrl_c_when(waiting):
            next(subscription)


FORGETFUL = """
import sys, threading
from tailrace.client import BrokerClient
client = BrokerClient("127.0.0.1", int(sys.argv[1]))
client.connect()
handled = threading.Event()
client.subscribe_to_subscription("s", handler=lambda message: handled.set())
client.publish("t", b"x")
assert handled.wait(60)
"""


def test_a_forgotten_client_does_not_keep_the_program_alive(rig: Rig) -> None:
    def deliver_too(peer: Peer, frame: Frame) -> None:
        rig.listener.publish(peer, frame)
        peer.deliver(0)

    rig.listener.on[M.PUBLISH] = deliver_too
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL, str(rig.listener.port)],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert rig.listener.of(M.ACK)  # what was handled is acknowledged on the way out


def test_names_are_found_where_people_look_for_them() -> None:
    import tailrace.client as package

    for name in (
        "AsyncClient",
        "AsyncMessage",
        "BrokerClient",
        "Message",
        "Published",
        "Reconnect",
        "Status",
    ):
        assert getattr(package, name).__name__ == name
    assert Reconnect() == Reconnect(delay_s_min=0.05, delay_s_max=5.0, attempts_max=None)
