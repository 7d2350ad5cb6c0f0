"""TXN_BEGIN, TXN_COMMIT and TXN_ABORT over real sockets: effects, refusals, and what a loss leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.native.rig import Client, Refused, Rig, both_loops, play, refused, settling

from tailrace.model import ErrorCode
from tailrace.model.operation import Operation
from tailrace.model.session import INTERNAL
from tailrace.native import NativeConfig
from tailrace.wire.native import Frame, MessageType, write_entries, write_properties

OUT = "shipments"
BEGIN, COMMIT, ABORT = MessageType.TXN_BEGIN, MessageType.TXN_COMMIT, MessageType.TXN_ABORT


async def begin(client: Client, **properties: object) -> dict[str, str]:
    """Begin a transaction: the two properties that name it."""
    reply = await client.ask(BEGIN, **properties)
    return {name: reply.properties[name] for name in ("_transaction", "_transactional_id")}


def acknowledging(*messages: Frame) -> tuple[dict[str, str], bytes]:
    """The count and the body of a commit, with an entry for each message."""
    body = write_entries([(write_properties(settling(message)), b"") for message in messages])
    return ({"_count": str(len(messages))} if messages else {}), body


def send_commit(client: Client, named: dict[str, str], *messages: Frame) -> int:
    count, body = acknowledging(*messages)
    return client.send(COMMIT, body, **named, **count)


async def commit(client: Client, named: dict[str, str], *messages: Frame) -> Frame:
    return await client.reply(send_commit(client, named, *messages))


def state(rig: Rig, transactional_id: str) -> str:
    access = rig.broker.gate.access(INTERNAL)
    found = {each.transactional_id: each for each in access.transactions(Operation.DESCRIBE)}
    return found[transactional_id].state.label


def stable(rig: Rig, topic: str = OUT, partition: int = 0) -> tuple[int, int]:
    """How far readers of committed records come, and the end."""
    place = rig.partition(topic, partition)
    return place.last_stable_offset, place.high_watermark


async def with_message(rig: Rig, **settings: object) -> tuple[Client, Frame]:
    """A worker that has one message, and a topic for what it makes of it."""
    await rig.create_topic()
    await rig.create_topic(OUT)
    worker = await rig.subscriber(**settings)
    await worker.publish(b"order")
    return worker, await worker.data()


@both_loops
def test_messages_are_published_and_acknowledged_in_one_step(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        await rig.create_topic("audit")
        reader = await rig.connect()
        await reader.ask(MessageType.SUBSCRIBE, _subscription="reader", _topic=OUT)
        named = await begin(worker)
        assert named["_transactional_id"] == "__tailrace-1-0"
        one = worker.send(MessageType.PUBLISH, b"a", _topic=OUT, _transaction=named["_transaction"])
        two = worker.send(MessageType.PUBLISH, b"b", _topic="audit", _transaction=named["_transaction"])
        assert [(await worker.reply(each)).properties["_offset"] for each in (one, two)] == ["0", "0"]
        assert stable(rig) == (0, 1)
        assert (await commit(worker, named, message)).properties == {"_count": "1"}
        assert stable(rig) == (2, 2)
        delivered = await reader.data()
        assert (delivered.body, delivered.sequence) == (b"a", 0)
        assert rig.broker.subscriptions.known("workers").partitions[0].machine.cursor.position == 1
        assert (await worker.ack(message)).properties["_count"] == "0"

    play(scenario, uv=uv)


def test_all_of_it_may_be_sent_at_once_and_is_in_order() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        for number in range(20):
            worker.send(MessageType.PUBLISH, b"%d" % number, _topic=OUT, _transaction=named["_transaction"])
        entries = write_entries([(b"", b"x"), (b"_key=k\0", b"y")])
        worker.send(
            MessageType.PUBLISH_BATCH, entries, _topic=OUT, _count=2, _transaction=named["_transaction"]
        )
        await worker.publish(b"beside it", OUT)
        await commit(worker, named, message)
        values = [value for value in await rig.values(OUT) if value is not None]
        assert [each for each in values if each != b"beside it"][:22] == [
            *(b"%d" % number for number in range(20)),
            b"x",
            b"y",
        ]
        batches = [
            batch for batch in await rig.batches(OUT) if batch.is_transactional and not batch.is_control
        ]
        assert batches[0].base_sequence == 0
        assert sum(batch.count for batch in batches) == 22

    play(scenario)


def test_an_abort_takes_back_what_was_published_and_leaves_what_is_held() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        await worker.ask(ABORT, _transaction=named["_transaction"])
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"
        assert stable(rig) == (2, 2)
        following = await begin(worker)
        assert following["_transactional_id"] == named["_transactional_id"]
        assert following["_transaction"] != named["_transaction"]
        await commit(worker, following, message)
        assert state(rig, named["_transactional_id"]) == "CompleteCommit"

    play(scenario)


def test_an_empty_transaction_ends_either_way() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert (await commit(client, await begin(client))).properties == {"_count": "0"}
        await client.ask(ABORT, _transaction=(await begin(client))["_transaction"])

    play(scenario)


def test_the_end_of_the_connection_aborts() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        other = await rig.subscriber()
        worker.close()
        again = await other.data()
        assert (again.sequence, again.properties["_delivery"]) == (message.sequence, "2")
        await rig.wait_until(lambda: stable(rig) == (2, 2))
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"

    play(scenario)


def test_the_end_of_the_connection_aborts_one_with_a_name_of_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        named = await begin(client, _transactional_id="worker-1", _timeout_ms=30_000)
        assert named["_transactional_id"] == "worker-1"
        await client.publish(b"a", OUT, _transaction=named["_transaction"])
        client.close()
        await rig.wait_until(lambda: state(rig, "worker-1") == "CompleteAbort")

    play(scenario)


def test_a_client_takes_over_the_name_of_another_one() -> None:
    async def scenario(rig: Rig) -> None:
        old, new = await rig.connect(), await rig.connect()
        first = await begin(old, _transactional_id="worker-1")
        await old.publish(b"old", OUT, _transaction=first["_transaction"])
        second = await begin(new, _transactional_id="worker-1")
        with pytest.raises(Refused) as error:
            await old.publish(b"late", OUT, _transaction=first["_transaction"])
        assert error.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(Refused) as error:
            await commit(old, first)
        refused(error, ErrorCode.TRANSACTION_ABORTABLE, "a request that belongs to it was refused")
        await new.publish(b"new", OUT, _transaction=second["_transaction"])
        await commit(new, second)
        assert state(rig, "worker-1") == "CompleteCommit"

    play(scenario)


def test_a_message_whose_lock_ran_out_costs_the_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig, ack_timeout_ms=50, backoff_ms=1)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        again = await worker.data()
        assert again.properties["_delivery"] == "2"
        await worker.ask(MessageType.NACK, **settling(again), _delay_ms=60_000)
        with pytest.raises(Refused) as error:
            await commit(worker, named, message)
        refused(error, ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted", "no lock on a message")
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"
        with pytest.raises(Refused) as error:
            await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        refused(error, ErrorCode.INVALID_TXN_STATE, "no transaction", "TXN_BEGIN")

    play(scenario)


def test_a_refused_publish_costs_the_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        bad = worker.send(
            MessageType.PUBLISH, b"a", _topic=OUT, _partition=7, _transaction=named["_transaction"]
        )
        committing = send_commit(worker, named, message)
        with pytest.raises(Refused):
            await worker.reply(bad)
        with pytest.raises(Refused) as error:
            await worker.reply(committing)
        refused(error, ErrorCode.TRANSACTION_ABORTABLE, "there is no 7")
        assert (await worker.ack(message)).properties["_count"] == "1"

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"_transaction": "9/9"}, "no transaction 9/9 is open"),
        ({"_producer": 1, "_sequence": 0}, "_producer and _sequence do not go with _transaction"),
        ({"delay_ms": 50}, "cannot be delayed"),
    ],
)
def test_what_a_publish_of_a_transaction_cannot_have(properties: dict[str, object], words: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        named = await begin(client)
        with pytest.raises(Refused, match=words):
            await client.publish(b"a", OUT, **({"_transaction": named["_transaction"]} | properties))

    play(scenario)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ((b"_subscription=workers\0_partition=0\0_epoch=0\0_offsets=0\0", b"x"), "has no body"),
        ((b"_partition=0\0_epoch=0\0_offsets=0\0", b""), "_subscription is missing"),
        ((b"_subscription=other\0_partition=0\0_epoch=0\0_offsets=0\0", b""), "does not exist"),
        ((b"_subscription=workers\0_partition=0\0_epoch=0\0_offsets=x\0", b""), "_offsets"),
        ((b"_subscription=workers\0_partition=5\0_epoch=0\0_offsets=0\0", b""), "does not deliver from"),
        (
            (b"_subscription=workers\0_partition=0\0_epoch=0\0_offsets=0-999999\0", b""),
            "10000 messages at most",
        ),
        ((b"_subscription=workers\0_partition=0\0_epoch=0\0_offsets=0-9\0", b""), "no lock on a message"),
    ],
)
def test_a_commit_whose_acknowledgements_make_no_sense_aborts(entry: tuple[bytes, bytes], words: str) -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        with pytest.raises(Refused, match=words) as error:
            await worker.ask(COMMIT, write_entries([entry]), **named, _count=1)
        assert error.value.code == ErrorCode.TRANSACTION_ABORTABLE
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"
        assert (await worker.ack(message)).properties["_count"] == "1"

    play(scenario)


@pytest.mark.parametrize(
    ("body", "count"), [(b"\0\0\0\1", 1), (b"\0" * 8, 2), (b"\0" * 9, 1), (b"\0\0\0\1_\0\0\0\0", 1)]
)
def test_a_broken_body_of_a_commit_breaks_the_protocol_and_aborts(body: bytes, count: int) -> None:
    async def scenario(rig: Rig) -> None:
        worker, _ = await with_message(rig)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        worker.send(COMMIT, body, **named, _count=count)
        assert (await worker.wait_closed())[-1].sequence == 0
        await rig.wait_until(lambda: stable(rig) == (2, 2))
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"_timeout_ms": 5}, "_timeout_ms needs a _transactional_id"),
        ({"_transactional_id": "x", "_timeout_ms": 0}, "_timeout_ms"),
        ({"_transactional_id": "x", "_timeout_ms": 99_000_000}, "900000"),
        ({"_transactional_id": "__tailrace-1-0"}, "reserved"),
    ],
)
def test_a_begin_that_cannot_be(properties: dict[str, object], words: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused, match=words):
            await client.ask(BEGIN, **properties)

    play(scenario)


def test_a_connection_has_a_bound_of_open_transactions() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        first = await begin(client)
        await begin(client)
        with pytest.raises(Refused) as error:
            await begin(client)
        refused(error, ErrorCode.POLICY_VIOLATION, "2 open transactions")
        await commit(client, first)
        await begin(client)

    play(scenario, config=NativeConfig(transactions_max=2))


# ---- a lost answer


async def lost_answer(rig: Rig, **named_as: object) -> tuple[Client, dict[str, str], Frame]:
    """A worker whose connection ends while its commit is on its way to the disk."""
    worker, message = await with_message(rig)
    named = await begin(worker, **named_as)
    await worker.publish(b"a", OUT, _transaction=named["_transaction"])
    log = rig.log(OUT)
    log.hold()
    send_commit(worker, named, message)
    await rig.wait_until(lambda: state(rig, named["_transactional_id"]) == "CompleteCommit")
    worker.close()
    log.settle()
    await rig.wait_until(lambda: not rig.connection_is_open(worker))
    return await rig.connect(), named, message


@pytest.mark.parametrize("own", [{}, {"_transactional_id": "worker-1"}], ids=["lent", "own"])
def test_a_commit_whose_answer_was_lost_is_answered_when_it_is_repeated(own: dict[str, object]) -> None:
    async def scenario(rig: Rig) -> None:
        client, named, message = await lost_answer(rig, **own)
        for _ in range(2):
            await commit(client, named, message)
        assert rig.broker.subscriptions.known("workers").counters.acknowledged == 1
        other = await begin(client)
        assert other["_transactional_id"] != named["_transactional_id"], "a lent id is kept for the repeat"

    play(scenario)


def test_a_commit_that_never_arrived_is_aborted_when_it_is_repeated() -> None:
    async def scenario(rig: Rig) -> None:
        worker, message = await with_message(rig)
        named = await begin(worker)
        await worker.publish(b"a", OUT, _transaction=named["_transaction"])
        client = await rig.connect()
        with pytest.raises(Refused) as error:
            await commit(client, named, message)  # the first connection is not known to be lost yet
        refused(error, ErrorCode.TRANSACTION_ABORTABLE, "connection on which it was begun was lost")
        with pytest.raises(Refused) as error:
            await commit(worker, named, message)  # it was on its way all the time
        assert state(rig, named["_transactional_id"]) == "CompleteAbort"
        worker.close()
        with pytest.raises(Refused) as error:
            await commit(client, named, message)
        refused(error, ErrorCode.TRANSACTION_ABORTABLE)

    play(scenario)


def test_nobody_can_tell_once_another_producer_had_the_name() -> None:
    async def scenario(rig: Rig) -> None:
        client, named, message = await lost_answer(rig, _transactional_id="worker-1")
        other = await begin(client, _transactional_id="worker-1")
        await client.publish(b"b", OUT, _transaction=other["_transaction"])
        with pytest.raises(Refused) as error:
            await commit(client, named, message)
        assert error.value.code == ErrorCode.PRODUCER_FENCED
        await commit(client, other)

    play(scenario)


@pytest.mark.parametrize("name", ["", "7", "x/1", "7/", "-7/1", "7/1/1", "1" * 30 + "/1"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused, match="_transaction"):
            await client.ask(COMMIT, _transaction=name, _transactional_id="worker-1")

    play(scenario)


def test_a_broker_that_was_started_again_refuses_the_commit_and_delivers_again(tmp_path: Path) -> None:
    kept: dict[str, str] = {}

    async def first(rig: Rig) -> None:
        worker, message = await with_message(rig)
        kept.update(await begin(worker, _transactional_id="worker-1"))
        await worker.publish(b"a", OUT, _transaction=kept["_transaction"])
        kept["_offset"] = str(message.sequence)

    async def second(rig: Rig) -> None:
        named = {name: kept[name] for name in ("_transaction", "_transactional_id")}
        worker = await rig.subscriber()
        message = await worker.data()
        assert str(message.sequence) == kept["_offset"]
        with pytest.raises(Refused) as error:
            await commit(worker, named, message)
        refused(error, ErrorCode.TRANSACTION_ABORTABLE)
        assert stable(rig) == (2, 2)

    play(first, second, directory=tmp_path)


def test_a_transaction_that_took_too_long_cannot_commit() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        named = await begin(client, _transactional_id="worker-1", _timeout_ms=50)
        await client.publish(b"a", OUT, _transaction=named["_transaction"])
        await rig.wait_until(lambda: state(rig, "worker-1") == "CompleteAbort")
        with pytest.raises(Refused):
            await commit(client, named)
        again = await begin(client, _transactional_id="worker-1", _timeout_ms=50_000)
        await client.publish(b"a", OUT, _transaction=again["_transaction"])
        await commit(client, again)

    play(scenario)


def test_many_transactions_of_one_connection_use_one_id() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        names = set()
        for _ in range(20):
            named = await begin(client)
            names.add(named["_transactional_id"])
            await client.publish(b"a", OUT, _transaction=named["_transaction"])
            await commit(client, named)
        assert names == {"__tailrace-1-0"}
        both = await asyncio.gather(begin(await rig.connect()), begin(await rig.connect()))
        assert len({each["_transactional_id"] for each in both} | names) == 3

    play(scenario)
