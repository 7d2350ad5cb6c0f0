"""The WebSocket shell of the protocol over a socket of queues: both forms, order, bounds, and every end."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from tests.unit.native.rig import TOPIC, HeldLog, Rig, play, settling

from tailrace.broker.publishing import Publisher
from tailrace.model.session import Session
from tailrace.native import NativeConfig
from tailrace.net import ConnectionFacts, RequestBudget
from tailrace.wire.native import Frame, FrameReader, MessageType, read_error, write_frame

KIB = 1024


class FakeSocket:
    """A WebSocket that hands over what a test puts in; `writable` cleared, its client does not read."""

    facts = ConnectionFacts("127.0.0.1", 50_000, "127.0.0.1", 8080, "http")

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self.sent: asyncio.Queue[bytes | str] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()
        self.is_lost = False
        self.closed: tuple[int, str] | None = None

    async def receive(self) -> bytes | str | None:
        return await self.arrived.get()

    async def send(self, message: bytes | str) -> None:
        await self.writable.wait()
        if self.is_lost:
            raise ConnectionResetError("lost")
        self.sent.put_nowait(message)

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason


class WebClient:
    """One client by WebSocket."""

    def __init__(self, rig: Rig) -> None:
        self.socket = FakeSocket()
        self.shell = rig.listener.adopt(self.socket, Session(listener="http"))
        self.serving = asyncio.create_task(self.shell.serve())
        self.sequences = itertools.count(1)
        self._reader = FrameReader(1 << 26)

    def say(self, type: str, **fields: Any) -> int:
        """Send a text; its sequence."""
        sequence = next(self.sequences)
        self.socket.arrived.put_nowait(json.dumps({"type": type, "sequence": sequence, **fields}))
        return sequence

    async def text(self) -> dict[str, Any]:
        message = await self.socket.sent.get()
        assert isinstance(message, str)
        found: dict[str, Any] = json.loads(message)
        return found

    async def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        """The answer to a text, whatever comes before it."""
        sequence = self.say(type, **fields)
        while (answer := await self.text())["sequence"] != sequence or answer["type"] == "data":
            pass
        return answer

    def frames(self, *frames: bytes) -> None:
        self.socket.arrived.put_nowait(b"".join(frames))

    async def frame(self) -> Frame:
        while (frame := self._reader.next_frame()) is None:
            message = await self.socket.sent.get()
            assert isinstance(message, bytes)
            self._reader.feed(message)
        return frame

    def leave(self) -> None:
        self.socket.is_lost = True
        self.socket.writable.set()
        self.socket.arrived.put_nowait(None)


def publish(sequence: int, body: bytes, topic: str = TOPIC) -> bytes:
    return write_frame(MessageType.PUBLISH, sequence=sequence, properties={"_topic": topic}, body=body)


# ---- both forms


def test_a_client_of_texts_publishes_subscribes_and_acknowledges() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        stored = await client.ask("publish", topic=TOPIC, key="k", body="one", properties={"colour": "red"})
        assert (stored["type"], stored["partition"], stored["offset"]) == ("ack", 0, 0)
        joined = await client.ask("subscribe", subscription="jobs", topic=TOPIC, credit=10)
        assert joined["ack_timeout_ms"] == 30_000
        data = await client.text()
        assert (data["type"], data["key"], data["body"]) == ("data", "k", "one")
        assert data["properties"] == {"colour": "red"}
        done = {name: data[name] for name in ("subscription", "partition", "epoch")}
        assert (await client.ask("ack", **done, offsets=data["sequence"]))["count"] == 1
        client.leave()
        await client.serving

    play(scenario)


def test_credit_bounds_what_is_on_its_way() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = WebClient(rig)
        await client.ask("subscribe", subscription="jobs", topic=TOPIC, credit=2)
        for body in ("a", "b", "c"):
            client.say("publish", topic=TOPIC, body=body)
        answers = [await client.text() for _ in range(5)]
        assert sorted(each["type"] for each in answers) == ["ack", "ack", "ack", "data", "data"]
        client.say("credit", subscription="jobs", credit=3)
        assert (await client.text())["body"] == "c"
        client.leave()
        await client.serving

    play(scenario)


def test_a_client_is_answered_in_the_form_in_which_it_spoke_last() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        assert (await client.ask("publish", topic=TOPIC, body="x"))["offset"] == 0
        client.frames(publish(50, b"y"), publish(51, b"\xff"))
        frames = [await client.frame() for _ in range(2)]
        assert [(each.sequence, each.properties["_offset"]) for each in frames] == [(50, "1"), (51, "2")]
        assert (await client.ask("publish", topic=TOPIC, body="z"))["offset"] == 3
        assert await rig.values() == [b"x", b"y", b"\xff", b"z"]
        client.leave()
        await client.serving

    play(scenario)


def test_a_tcp_client_and_a_websocket_share_a_subscription() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        web, tcp = WebClient(rig), await rig.subscriber("jobs", _credit=1)
        await web.ask("subscribe", subscription="jobs", credit=1)
        await tcp.publish(b"1")
        await tcp.publish(b"2")
        bodies = {bytes((await tcp.data()).body), (await web.text())["body"].encode()}
        assert bodies == {b"1", b"2"}
        web.leave()  # and what it held goes to the other
        await web.serving
        tcp.send(MessageType.CREDIT, _subscription="jobs", _credit=5)
        assert bytes((await tcp.data()).body) in bodies

    play(scenario)


def test_messages_that_are_there_together_are_stored_as_one_batch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = WebClient(rig)
        for number in range(5):
            client.say("publish", topic=TOPIC, body=str(number))
        for _ in range(5):
            await client.text()
        assert [batch.count for batch in await rig.batches()] == [5]
        client.leave()
        await client.serving

    play(scenario)


def test_requests_wait_for_one_that_takes_a_while() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.say("publish", topic="made", body="1")  # which makes the topic
        client.say("publish", topic="made", body="2")
        client.frames(publish(90, b"3", "made"), publish(91, b"4", "made"))
        await rig.wait_until(lambda: client.shell.protocol.is_done and client.socket.sent.qsize() >= 2)
        assert await rig.values("made") == [b"1", b"2", b"3", b"4"]
        client.leave()
        await client.serving

    play(scenario)


# ---- what is wrong


def test_a_request_that_makes_no_sense_is_answered_and_the_socket_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        for fields in (
            {"type": "teleport"},
            {"type": "publish"},
            {"type": "data"},
            {"type": 99},
            {"body": 1},
        ):
            client.socket.arrived.put_nowait(json.dumps({"sequence": 5, **fields}))
            answer = await client.text()
            assert (answer["type"], answer["sequence"]) == ("error", 5)
        client.socket.arrived.put_nowait('{"type": "teleport"}')  # which asked for no answer
        assert (await client.ask("describe", what="topics"))["type"] == "ack"
        client.leave()
        await client.serving

    play(scenario)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no json",
        "[]",
        '{"type": "describe", "sequence": -1}',
        b"",
        b"\x00\x00\x00",
        b"\xff\xff\xff\xff",
        publish(1, b"x")[:-1],
        publish(1, b"x") + b"\x00",
        b"\x00\x00\x00\x1c" + b"\xff" * 28,
    ],
)
def test_a_broken_message_gets_a_last_word_behind_the_answers_before_it(message: bytes | str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        log.hold()
        client = WebClient(rig)
        asked = client.say("publish", topic=TOPIC, body="x")
        await rig.wait_until(lambda: bool(log.held))
        client.socket.arrived.put_nowait(message)
        await rig.wait_until(lambda: client.shell.protocol.is_done is False and not client.shell.is_open())
        assert client.socket.sent.empty()
        log.settle()
        await client.serving
        assert client.socket.closed is not None
        code, reason = client.socket.closed
        assert code == 1002 and reason
        sent = [client.socket.sent.get_nowait() for _ in range(client.socket.sent.qsize())]
        answers = (
            [json.loads(each) for each in sent if isinstance(each, str)]
            if isinstance(message, str)
            else [
                {"type": each.type, "sequence": each.sequence}
                for each in _frames(b"".join(each for each in sent if isinstance(each, bytes)))
            ]
        )
        assert [each["sequence"] for each in answers][:1] == [asked]
        assert answers[-1]["sequence"] == 0
        assert answers[-1]["type"] in ("error", MessageType.ERROR)

    play(scenario)


def _frames(data: bytes) -> list[Frame]:
    reader = FrameReader(1 << 26)
    reader.feed(data)
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def test_a_frame_over_the_bound_breaks_the_protocol() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.frames(publish(1, b"x" * 2 * KIB))
        await client.serving
        (error,) = _frames(await client.socket.sent.get())  # type: ignore[arg-type]
        assert "2" in read_error(error).message
        assert client.socket.closed is not None and client.socket.closed[0] == 1002

    play(scenario, config=NativeConfig(frame_bytes_max=KIB))


def test_a_text_over_the_bound_of_a_frame_breaks_the_protocol() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.say("publish", topic=TOPIC, body="x" * 2 * KIB)
        answer = await client.text()
        assert (answer["type"], answer["sequence"]) == ("error", 0)
        await client.serving
        assert client.socket.closed is not None and client.socket.closed[0] == 1002

    play(scenario, config=NativeConfig(frame_bytes_max=KIB))


def test_a_mistake_of_ours_costs_this_socket_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        other, client = WebClient(rig), WebClient(rig)
        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "publish", lambda *_, **__: 1 / 0)
            client.say("publish", topic=TOPIC, body="x")
            await client.serving
        assert client.socket.closed is not None and client.socket.closed[0] == 1011
        assert (await other.ask("publish", topic=TOPIC, body="y"))["offset"] == 0
        other.leave()
        await other.serving

    play(scenario)
    assert "request failed" in caplog.text


def test_a_mistake_while_sending_is_told_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        with monkeypatch.context() as patch:
            patch.setattr("tailrace.native.websocket_transport.write_json_frame", lambda _: 1 / 0)
            client.say("describe", what="topics")
            await client.serving
        assert client.socket.closed is not None and client.socket.closed[0] == 1011
        assert rig.listener.service.counters.failures == 1

    play(scenario)
    assert "request failed" in caplog.text


def test_nothing_is_sent_after_a_mistake() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.frames(publish(1, b"x"))
        await client.frame()
        client.shell.send(publish(2, b"y"))
        client.shell.failed(ZeroDivisionError("a mistake"))
        await client.serving
        assert client.socket.sent.empty()

    play(scenario)


# ---- bounds


def test_a_client_that_does_not_read_is_delivered_no_more_than_the_outbox_holds() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = WebClient(rig)
        await client.ask("subscribe", subscription="jobs", topic=TOPIC, credit=10_000)
        client.socket.writable.clear()
        publisher = await rig.connect()
        for _ in range(200):
            await publisher.publish(b"x" * 4 * KIB)
        assert not client.shell.is_open()
        assert client.shell.buffered_bytes < 64 * KIB + 32 * KIB
        client.socket.writable.set()
        for _ in range(200):
            assert (await client.text())["type"] == "data"
        client.leave()
        await client.serving

    play(scenario, config=NativeConfig(out_buffer_bytes_max=64 * KIB, reply_bytes_max=16 * KIB))


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.socket.writable.clear()
        for _ in range(500):
            client.say("describe", what="topics")
        await rig.wait_until(lambda: client.shell.buffered_bytes >= 3 * KIB)
        before = client.socket.arrived.qsize()
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.socket.arrived.qsize() == before > 0
        assert client.shell.buffered_bytes < 5 * KIB
        client.socket.writable.set()
        for _ in range(500):
            assert (await client.text())["type"] == "ack"
        client.leave()
        await client.serving

    play(scenario, config=NativeConfig(out_buffer_bytes_max=2 * KIB, reply_bytes_max=KIB))


def test_a_client_that_never_reads_is_given_up() -> None:
    async def scenario(rig: Rig) -> None:
        client = WebClient(rig)
        client.socket.writable.clear()
        client.say("describe", what="topics")
        await client.serving
        assert client.socket.closed is not None and client.socket.closed[0] == 1013

    play(scenario, config=NativeConfig(heartbeat_interval_ms=20))


def test_too_many_unanswered_requests_hold_the_next() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        log.hold()
        client = WebClient(rig)
        for number in range(10):
            client.say("publish", topic=TOPIC, body=str(number))
        await rig.wait_until(lambda: client.shell.protocol.unanswered == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.shell.protocol.unanswered == 4
        assert client.socket.arrived.qsize() == 6
        log.settle()
        for _ in range(10):
            assert (await client.text())["type"] == "ack"
        assert await rig.values() == [b"%d" % number for number in range(10)]
        client.leave()
        await client.serving

    play(scenario, config=NativeConfig(unanswered_requests_max=4))


def test_the_budget_of_the_node_holds_the_next() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        log.hold()
        first, second = WebClient(rig), WebClient(rig)
        first.say("publish", topic=TOPIC, body="x" * 3 * KIB)
        await rig.wait_until(lambda: rig.listener.budget.used > 3 * KIB)
        second.say("publish", topic=TOPIC, body="y" * 3 * KIB)
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        assert second.shell.protocol.unanswered == 0
        log.settle()
        assert (await first.text())["offset"] == 0
        assert (await second.text())["offset"] == 1
        for client in (first, second):
            client.leave()
            await client.serving

    play(scenario, budget=RequestBudget(4 * KIB))


def test_one_that_leaves_while_it_waits_for_the_budget_gives_up_its_place() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        log.hold()
        first, second = WebClient(rig), WebClient(rig)
        first.say("publish", topic=TOPIC, body="x" * 3 * KIB)
        await rig.wait_until(lambda: rig.listener.budget.used > 3 * KIB)
        second.say("publish", topic=TOPIC, body="y" * 3 * KIB)
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        second.shell.close_soon()
        await second.serving
        log.settle()
        assert (await first.text())["offset"] == 0
        first.leave()
        await first.serving
        assert await rig.values() == [b"x" * 3 * KIB]

    play(scenario, budget=RequestBudget(4 * KIB))


def test_what_is_not_durable_in_time_is_answered() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        log.hold()
        client = WebClient(rig)
        answer = await client.ask("publish", topic=TOPIC, body="x")
        assert (answer["type"], answer["code"]) == ("error", "REQUEST_TIMED_OUT")
        log.settle()
        client.leave()
        await client.serving

    play(scenario, config=NativeConfig(request_timeout_s=0.05))


# ---- ends


def test_a_client_that_leaves_gives_back_what_it_held() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = WebClient(rig)
        await client.ask("subscribe", subscription="jobs", topic=TOPIC)
        publisher = await rig.connect()
        await publisher.publish(b"x")
        assert (await client.text())["delivery"] == 1
        client.leave()
        await client.serving
        other = await rig.subscriber("jobs")
        data = await other.data()
        assert bytes(data.body) == b"x"
        assert settling(data)["_offsets"] == "0"
        assert client.socket.closed is None

    play(scenario)


def test_the_end_of_the_node_answers_what_is_under_way_first() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        log = rig.log()
        assert isinstance(log, HeldLog)
        log.hold()
        client = WebClient(rig)
        client.say("publish", topic=TOPIC, body="x")
        await rig.wait_until(lambda: bool(log.held))
        client.shell.close_soon()
        await asyncio.sleep(0)
        assert not client.serving.done()
        log.settle()
        assert (await client.text())["offset"] == 0
        await client.serving
        assert client.socket.closed == (1001, "the node is stopping")

    play(scenario)


def test_the_end_of_the_listener_ends_the_sockets_that_it_adopted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = WebClient(rig)
        await client.ask("publish", topic=TOPIC, body="x")
        await rig.listener.close()
        await client.serving
        assert client.socket.closed == (1001, "the node is stopping")
        late = WebClient(rig)
        await late.serving
        assert late.socket.closed == (1001, "the node is stopping")

    play(scenario)


def test_an_end_does_not_wait_for_ever() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        rig.log().hold()
        client = WebClient(rig)
        client.say("publish", topic=TOPIC, body="x")
        await rig.wait_until(lambda: bool(rig.log().held))
        client.shell.close_soon()
        await client.serving
        assert client.socket.closed is not None
        rig.log().settle()

    play(scenario, config=NativeConfig(close_grace_s=0.05))
