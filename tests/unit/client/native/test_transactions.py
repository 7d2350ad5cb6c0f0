"""Transactions of AsyncClient and BrokerClient against a scripted listener: frames, losses, errors."""

# ruff: noqa: PT012 - what is tested is how a with block is left

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.client.native.conftest import (
    PATIENCE_S,
    QUICK,
    FakeListener,
    M,
    Peer,
    listener_in_thread,
    run,
)

import tailrace
from tailrace.client import BrokerClient
from tailrace.client.async_client import AsyncClient
from tailrace.client.error import ClientError, OutcomeUnknown, TransactionFailed
from tailrace.client.native import transaction as module
from tailrace.client.native.error import InvalidMessage
from tailrace.client.native.message import AsyncMessage, Delivered
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.native import Frame, read_entries, read_properties

NAMES = {"_transaction": "7/3", "_transactional_id": "__tailrace-1-0"}


def serve_transactions(listener: FakeListener) -> None:
    listener.on[M.TXN_BEGIN] = lambda peer, frame: peer.reply(frame, NAMES)


def acknowledged(frame: Frame) -> list[dict[str, str]]:
    if not frame.body:
        return []
    entries = read_entries(frame.body, int(frame.properties["_count"]))
    return [read_properties(properties) for properties, _ in entries]


async def messages(listener: FakeListener, client: AsyncClient, *offsets: int) -> list[AsyncMessage]:
    """Pull messages of the subscription s."""

    def deliver(peer: Peer, frame: Frame) -> None:
        for offset in offsets:
            peer.deliver(offset, pull=frame.sequence)
        peer.reply(frame, {"_count": str(len(offsets))})

    listener.on[M.PULL] = deliver
    return await client.pull("s", len(offsets))


def settled(*those: Delivered) -> list[bool]:
    return [message.is_settled for message in those]


def test_a_block_is_begun_filled_and_committed() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        async with listener.client() as client:
            one, two, four = await messages(listener, client, 1, 2, 4)
            async with client.transaction() as tx:
                await tx.publish("out", b"a", key="k", colour="red", properties={"size": 3})
                await tx.publish("audit", "b", partition=2, ttl_ms=9)
                for message in (four, one, two):
                    tx.ack(message)
                assert settled(one, two, four) == [False] * 3
            assert settled(one, two, four) == [True] * 3
            await one.ack()
        assert listener.of(M.TXN_BEGIN)[0].properties == {}
        first, second = listener.of(M.PUBLISH)
        assert first.properties == {
            "_topic": "out",
            "_transaction": "7/3",
            "_key": "k",
            "size": "3",
            "colour": "red",
        }
        assert second.properties == {
            "_topic": "audit",
            "_transaction": "7/3",
            "_partition": "2",
            "ttl_ms": "9",
        }
        (commit,) = listener.of(M.TXN_COMMIT)
        assert commit.properties == {**NAMES, "_count": "1"}
        assert acknowledged(commit) == [
            {"_subscription": "s", "_topic": "t", "_partition": "0", "_epoch": "3", "_offsets": "1-2,4"}
        ]
        assert not listener.of(M.ACK, M.TXN_ABORT)

    run(test)


def test_an_exception_aborts_and_passes() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        async with listener.client() as client:
            (message,) = await messages(listener, client, 1)
            with pytest.raises(KeyError):
                async with client.transaction("worker-1", timeout_s=2.5) as tx:
                    await tx.publish("out", b"a")
                    tx.ack(message)
                    raise KeyError
            assert not message.is_settled
            with pytest.raises(ClientError, match="is aborted"):
                await tx.publish("out", b"a")
        begin = {"_transactional_id": "worker-1", "_timeout_ms": "2500"}
        assert listener.of(M.TXN_BEGIN)[0].properties == begin
        assert [frame.properties for frame in listener.of(M.TXN_ABORT)] == [{"_transaction": "7/3"}]
        assert not listener.of(M.TXN_COMMIT, M.ACK)

    run(test)


def test_a_refused_message_is_heard_of_and_aborts() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        listener.on[M.PUBLISH] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.MESSAGE_TOO_LARGE, "too large"
        )
        async with listener.client() as client:
            with pytest.raises(
                TransactionFailed, match="a message of the transaction was refused: too large"
            ):
                async with client.transaction() as tx:
                    await tx.publish("out", b"a")
                    await client.describe_topic("t")
                    await tx.publish("out", b"b")
        assert len(listener.of(M.TXN_ABORT)) == 1

    run(test)


def test_a_commit_that_is_refused_leaves_the_messages_to_their_worker() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        listener.on[M.TXN_COMMIT] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.TRANSACTION_ABORTABLE, "no lock"
        )
        async with listener.client() as client:
            (message,) = await messages(listener, client, 1)
            with pytest.raises(TransactionFailed, match="nothing of the transaction took effect: no lock"):
                async with client.transaction() as tx:
                    tx.ack(message)
            assert not message.is_settled
            await message.nack()
        assert len(listener.of(M.NACK)) == 1 and not listener.of(M.TXN_ABORT)

    run(test)


def test_messages_of_an_aborted_block_are_not_acknowledged_by_iteration() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s")
            for offset in (1, 2, 3):
                listener.peer.deliver(offset)
            with pytest.raises(KeyError):
                async with client.transaction() as tx:
                    tx.ack(await anext(subscription))
                    raise KeyError
            async with client.transaction() as tx:
                tx.ack(await anext(subscription))
            await anext(subscription)
            (nack,) = await listener.got(M.NACK)
            assert nack.properties["_offsets"] == "1"
            assert not listener.of(M.ACK)

    run(test)


def test_a_block_that_was_left_cannot_be_used_again() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        async with listener.client() as client:
            (message,) = await messages(listener, client, 1)
            tx = client.transaction()
            with pytest.raises(ClientError, match="is new"):
                tx.ack(message)
            async with tx:
                with pytest.raises(InvalidMessage, match="cannot be delayed"):
                    await tx.publish("out", b"a", delay_ms=5)
                await message.ack()
                with pytest.raises(ClientError, match="settled already"):
                    tx.ack(message)
            with pytest.raises(ClientError, match="used once"):
                await tx.begin()

    run(test)


def test_no_more_than_some_messages_are_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNANSWERED_MAX", 3)
    waiting: list[tuple[Peer, Frame]] = []

    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        listener.on[M.PUBLISH] = lambda peer, frame: waiting.append((peer, frame))
        async with listener.client() as client, client.transaction() as tx:

            async def publish_all() -> None:
                for _ in range(5):
                    await tx.publish("out", b"a")

            task = asyncio.get_running_loop().create_task(publish_all())
            await listener.got(M.PUBLISH, 3)
            await client.describe_topic("t")
            assert len(listener.of(M.PUBLISH)) == 3
            for peer, frame in waiting:
                peer.reply(frame)
            await task

    run(test)


# ---- losses


def test_a_connection_that_is_lost_before_the_commit_ends_the_transaction() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        async with listener.client() as client:
            with pytest.raises(TransactionFailed, match="the connection was lost"):
                async with client.transaction() as tx:
                    await tx.publish("out", b"a")
                    await listener.got(M.PUBLISH)
                    peer = listener.peer
                    peer.drop()
                    await listener.until(lambda: listener.peer is not peer)
                    await client.describe_topic("t")
        assert not listener.of(M.TXN_COMMIT)

    run(test)


def lose_first_commit(listener: FakeListener, code: ErrorCode = ErrorCode.NONE) -> None:
    """The first answer is lost with its connection; the next one is an ACK, or an error of this code."""

    def commit(peer: Peer, frame: Frame) -> None:
        if len(listener.of(M.TXN_COMMIT)) == 1:
            peer.drop()
        elif code:
            peer.refuse(frame, code)
        else:
            peer.reply(frame)

    listener.on[M.TXN_COMMIT] = commit


def test_a_lost_answer_is_asked_for_again_with_the_same_names() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        lose_first_commit(listener)
        async with listener.client() as client:
            (message,) = await messages(listener, client, 1)
            async with client.transaction() as tx:
                tx.ack(message)
            assert message.is_settled
        first, second = listener.of(M.TXN_COMMIT)
        assert (first.properties, first.body) == (second.properties, second.body)
        assert second.properties == {**NAMES, "_count": "1"}

    run(test)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionFailed),
        (ErrorCode.PRODUCER_FENCED, OutcomeUnknown),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OutcomeUnknown),
    ],
)
def test_what_a_repeated_commit_is_told(code: ErrorCode, kind: type[Exception]) -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        lose_first_commit(listener, code)
        async with listener.client() as client:
            (message,) = await messages(listener, client, 1)
            with pytest.raises(kind):
                async with client.transaction() as tx:
                    tx.ack(message)
            assert not message.is_settled

    run(test)


def test_a_lost_answer_stays_unknown_where_no_connection_comes_back() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)
        lose_first_commit(listener)
        async with listener.client(reconnect=None) as client:
            with pytest.raises(OutcomeUnknown, match="its answer was lost"):
                async with client.transaction() as tx:
                    await tx.publish("out", b"a")

    run(test)


def test_a_refusal_for_now_is_asked_again() -> None:
    async def test(listener: FakeListener) -> None:
        serve_transactions(listener)

        def commit(peer: Peer, frame: Frame) -> None:
            if len(listener.of(M.TXN_COMMIT)) == 1:
                peer.refuse(frame, ErrorCode.COORDINATOR_NOT_AVAILABLE, retriable=True)
            else:
                peer.reply(frame)

        listener.on[M.TXN_COMMIT] = commit
        async with listener.client() as client, client.transaction() as tx:
            await tx.publish("out", b"a")
        assert len(listener.of(M.TXN_COMMIT)) == 2

    run(test)


def test_a_broker_without_transactions_says_so() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.TXN_BEGIN] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.UNSUPPORTED_VERSION, "TXN_BEGIN is not known here"
        )
        async with listener.client() as client:
            with pytest.raises(BrokerError, match="TXN_BEGIN is not known here"):
                async with client.transaction():
                    raise AssertionError("it did not begin")

    run(test)


# ---- threads


def test_a_thread_has_the_same() -> None:
    with listener_in_thread() as (listener, _):
        serve_transactions(listener)

        def deliver(peer: Peer, frame: Frame) -> None:
            peer.deliver(1, pull=frame.sequence)
            peer.reply(frame, {"_count": "1"})

        listener.on[M.PULL] = deliver
        with BrokerClient(
            "127.0.0.1", listener.port, reconnect=QUICK, request_timeout_s=PATIENCE_S
        ) as client:
            (message,) = client.pull("s")
            with client.transaction() as tx:
                tx.publish("out", b"a", colour="red")
                tx.ack(message)
                assert settled(message) == [False]
            assert settled(message) == [True]
            with pytest.raises(KeyError), client.transaction("w") as tx:
                raise KeyError
            tx = client.transaction()
            tx.begin()
            tx.abort()
            tx = client.transaction()
            tx.begin()
            tx.commit()
        assert len(listener.of(M.TXN_COMMIT)) == 2 and len(listener.of(M.TXN_ABORT)) == 2


def test_a_message_whose_transaction_failed_before_its_acknowledgement_comes_again() -> None:
    """A worker that catches the error and goes on must not lose the message: nothing was written for it."""
    with tailrace.Broker() as broker:
        host, _, port = broker.native_address.rpartition(":")
        with BrokerClient(host, int(port)) as client:
            client.create_topic("orders")
            client.create_subscription("billing", "orders", start_offset=0)
            client.publish("orders", b"one")
            counts = []
            orders = client.subscribe_to_subscription("billing")
            for number in range(2):
                order = orders.get(PATIENCE_S)
                assert order is not None
                counts.append(order.delivery_count)
                try:
                    with client.transaction() as tx:
                        if not number:
                            raise InvalidMessage("before the acknowledgement")
                        tx.publish("invoices", order.body)
                        tx.ack(order)
                except InvalidMessage:
                    continue
            assert counts == [1, 2]
        assert [each.value for each in broker.read("invoices")] == [b"one"]


def test_a_handler_that_swallows_the_failure_of_its_transaction_gets_the_message_again() -> None:
    async def main() -> None:
        counts: list[int] = []
        done = asyncio.Event()

        async def handle(order: AsyncMessage) -> None:
            counts.append(order.delivery_count)
            with contextlib.suppress(InvalidMessage):
                async with client.transaction() as tx:
                    if len(counts) == 1:
                        raise InvalidMessage("before the acknowledgement")
                    tx.ack(order)
                done.set()

        async with tailrace.AsyncBroker() as broker:
            host, _, port = broker.native_address.rpartition(":")
            async with AsyncClient(host, int(port)) as client:
                await client.create_topic("orders")
                await client.publish("orders", b"one")
                await client.subscribe("orders", start_offset=0, handler=handle)
                await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert counts == [1, 2]

    asyncio.run(main())
