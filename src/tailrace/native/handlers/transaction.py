"""TXN_BEGIN, TXN_COMMIT, TXN_ABORT: publishing and acknowledging in one step (`native/transacting`).

A commit carries the acknowledgements in its body: entries as those of a PUBLISH_BATCH, whose properties are
those of an ACK and whose bodies are empty. All three are answered when what they did is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.transactions.acknowledging import Acknowledgement
from tailrace.model import BrokerError, ErrorCode
from tailrace.native.handlers.settling import read_settled
from tailrace.native.handlers.subscription import subscription_of
from tailrace.native.property import number_of, refusal, text_of
from tailrace.native.transacting import OpenTransaction, identity_of
from tailrace.wire.native import Frame, MessageType, read_entries, read_properties, write_frame

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)
_TIMEOUT_MS_MAX = (1 << 31) - 1
_ENTRIES_MAX = 1_000


def begin(protocol: NativeProtocol, frame: Frame) -> None:
    properties, config = frame.properties, protocol.config
    transactional_id = properties.get("_transactional_id", "")
    if not transactional_id and "_timeout_ms" in properties:
        raise refusal("_timeout_ms needs a _transactional_id: the node's own ids have a time of their own")
    timeout_ms = number_of(
        properties, "_timeout_ms", least=1, most=_TIMEOUT_MS_MAX, default=config.transaction_timeout_ms
    )
    work = _begin(protocol, frame.sequence, transactional_id, timeout_ms)
    protocol.run("begin transaction", frame.sequence, work)


def commit(protocol: NativeProtocol, frame: Frame) -> None:
    name, sequence = text_of(frame.properties, "_transaction"), frame.sequence
    if protocol.transactions.get(name) is None and "_transactional_id" in frame.properties:
        work = _commit_again(protocol, sequence, frame.properties["_transactional_id"], name)
        protocol.run("commit again", sequence, work)
        return
    transaction = protocol.transactions.find(name)
    try:
        acknowledgements, count = _read_acknowledgements(protocol, frame)
    except BrokerError as error:
        transaction.fail(error)
        acknowledgements, count = [], 0
    transaction.is_ending = True
    protocol.run("commit", sequence, _commit(protocol, sequence, transaction, acknowledgements, count))


def abort(protocol: NativeProtocol, frame: Frame) -> None:
    transaction = protocol.transactions.find(text_of(frame.properties, "_transaction"))
    transaction.is_ending = True
    protocol.run("abort", frame.sequence, _abort(protocol, frame.sequence, transaction))


def _read_acknowledgements(protocol: NativeProtocol, frame: Frame) -> tuple[list[Acknowledgement], int]:
    """What a commit acknowledges, and how many messages that are."""
    if not frame.body and "_count" not in frame.properties:
        return [], 0
    entries = number_of(frame.properties, "_count", least=1, most=_ENTRIES_MAX)
    found: list[Acknowledgement] = []
    count = 0
    for encoded, body in read_entries(frame.body, entries):
        if body:
            raise refusal("an acknowledgement in a TXN_COMMIT has no body")
        properties = read_properties(encoded)
        subscription = subscription_of(protocol, properties)
        settled = read_settled(properties)
        count += sum(end - start for start, end in settled.ranges)
        found.append(
            Acknowledgement(subscription, protocol.membership.members(subscription.config.name), *settled)
        )
    most = protocol.config.transaction_acks_max
    if count > most:
        raise BrokerError(
            f"a transaction acknowledges {most} messages at most, not {count}. Commit more often",
            code=ErrorCode.POLICY_VIOLATION,
        )
    return found, count


async def _begin(protocol: NativeProtocol, sequence: int, transactional_id: str, timeout_ms: int) -> bytes:
    begun = await protocol.transactions.begin(transactional_id, timeout_ms=timeout_ms)
    properties = {"_transaction": begun.name, "_transactional_id": begun.handle.id}
    return write_frame(_ACK, sequence=sequence, properties=properties)


async def _commit(
    protocol: NativeProtocol,
    sequence: int,
    transaction: OpenTransaction,
    acknowledgements: list[Acknowledgement],
    count: int,
) -> bytes:
    await protocol.transactions.commit(transaction, acknowledgements)
    return write_frame(_ACK, sequence=sequence, properties=b"_count=%d\0" % count)


async def _commit_again(protocol: NativeProtocol, sequence: int, transactional_id: str, name: str) -> bytes:
    await protocol.transactions.commit_again(transactional_id, identity_of(name))
    return write_frame(_ACK, sequence=sequence)


async def _abort(protocol: NativeProtocol, sequence: int, transaction: OpenTransaction) -> bytes:
    await protocol.transactions.abort(transaction)
    return write_frame(_ACK, sequence=sequence)
