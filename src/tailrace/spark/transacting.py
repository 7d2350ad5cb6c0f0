"""Transactions that one process opens and another one ends: what the tasks and the driver of a write share.

    task      Attempt: takes a transactional id, joins partitions, and leaves its transaction open
    driver    prepare_opened, commit_opened, abort_opened: by the identity that a task has returned

A transaction is known by its `Opened`: the transactional id with the producer id and epoch under which it is
open. It has a timeout, so that nothing stays open for ever of a process that is gone. Where the broker has
two-phase commit (feature tailrace.2pc, KIP-939) the driver prepares it: then it has no timeout, and no
InitProducerId aborts it that does not name it.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, NamedTuple

from tailrace import __version__
from tailrace.client.connection import Connection
from tailrace.client.error import UnsupportedApi, check
from tailrace.client.keys import ADD_PARTITIONS_TO_TXN, DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID
from tailrace.client.transaction import add_partitions_request, check_partitions_added
from tailrace.client.transaction_admin import (
    END_FENCES_FROM,
    ONGOING,
    describe_transaction,
    end_transaction,
    list_transactions,
)
from tailrace.model import BrokerError, ConfigError, ErrorCode, TailraceError, TopicPartition
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

TWO_PHASE_COMMIT = "tailrace.2pc"
_TWO_PHASE_VERSION = 6  # of InitProducerId, which the feature stands for: ApiVersions does not say it
_NAMES_MAX = 16
"""Transactional ids that an attempt tries. Python does not know the attempt of its stage, so that several
attempts may have one name."""
_BUSY = "Ongoing", "PrepareCommit", "PrepareAbort"
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_GONE = (*_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_ABORTED = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)


class Opened(NamedTuple):
    """A transaction that is open, or was."""

    transactional_id: str
    producer_id: int
    epoch: int


class Fate(enum.Enum):
    """What became of a transaction that was to be committed."""

    COMMITTED = "committed"
    LOST = "lost"  # it was aborted, or nobody knows


class NoTransactions(ConfigError):
    """The broker cannot do what delivery=exactly-once needs."""


class FencedAttempt(TailraceError):
    """No transactional id is free for an attempt."""


async def connection_to_coordinator(client: KafkaClient, transactional_id: str) -> Connection:
    """The connection to the coordinator of a transactional id."""
    node = await client.find_coordinator(transactional_id, of_transactions=True)
    return await client.connection_to(node)


async def check_transactions(client: KafkaClient) -> bool:
    """Whether the broker has two-phase commit; NoTransactions if it has not even transactions."""
    connection = await client.connection_to(None)
    try:
        for key in (ADD_PARTITIONS_TO_TXN, DESCRIBE_TRANSACTIONS):
            connection.version_of(key)
    except UnsupportedApi as error:
        first, last = connection.versions.get(INIT_PRODUCER_ID, (0, -1))
        speaks = f"InitProducerId {first} to {last}" if last >= 0 else "no InitProducerId"
        raise NoTransactions(
            f"option delivery=exactly-once needs transactions, and the broker does not have them: {error}"
            f" (it speaks {speaks}). Upgrade it to Tailrace {__version__} or Kafka 3.0, or use"
            " delivery=at-least-once"
        ) from error
    return has_two_phase_commit(connection)


def has_two_phase_commit(connection: Connection) -> bool:
    return connection.features.get(TWO_PHASE_COMMIT, 0) >= 1


async def init(client: KafkaClient, transactional_id: str, *, timeout_ms: int) -> Opened:
    """Take over a transactional id for ordinary transactions; what is open under it is aborted."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    what = f"initializing transactional id {transactional_id}"

    async def attempt() -> Opened:
        reply = await client.request(INIT_PRODUCER_ID, request, transactional_id=transactional_id)
        check(reply.error_code, what)
        return Opened(transactional_id, reply.producer_id, reply.producer_epoch)

    return await client.retrying(what, attempt)


async def join(client: KafkaClient, opened: Opened, partitions: list[TopicPartition]) -> None:
    """Have partitions in a transaction, which begins with the first of them."""
    request = add_partitions_request(opened.transactional_id, (opened.producer_id, opened.epoch), partitions)

    async def attempt() -> None:
        reply = await client.request(ADD_PARTITIONS_TO_TXN, request, transactional_id=opened.transactional_id)
        check_partitions_added(reply)

    await client.retrying(f"adding partitions to the transaction of {opened.transactional_id}", attempt)


async def prepare_opened(client: KafkaClient, opened: Opened) -> bool:
    """Have an open transaction wait for its end, however long; False if it is not open any more."""
    name = opened.transactional_id
    request = InitProducerIdRequest(
        transactional_id=name,
        producer_id=opened.producer_id,
        producer_epoch=opened.epoch,
        enable2_pc=True,
        keep_prepared_txn=True,
    )
    what = f"preparing the transaction of {name}"

    async def attempt() -> None:
        reply = await client.request(
            INIT_PRODUCER_ID, request, transactional_id=name, version=_TWO_PHASE_VERSION
        )
        check(reply.error_code, what)

    try:
        await client.retrying(what, attempt)
    except BrokerError as error:
        if error.code in _GONE or error.code in _ABORTED:
            return False
        raise
    return True


async def commit_opened(client: KafkaClient, opened: Opened, *, two_phase: bool) -> Fate:
    """Commit a transaction; returns when that is durable, or when it is known that it cannot be.

    A prepared one (`two_phase`) is ended by its own EndTxn alone. So if its identity is not the present one
    any more, it has been committed before, and its id is used again or has expired.
    """
    try:
        await end_transaction(
            client, opened.transactional_id, producer_id=opened.producer_id, epoch=opened.epoch, commit=True
        )
    except BrokerError as error:
        if two_phase and error.code in _GONE:
            return Fate.COMMITTED
        if error.code in _GONE or error.code in _ABORTED:
            return Fate.LOST
        raise
    return Fate.COMMITTED


async def abort_opened(client: KafkaClient, opened: Opened) -> bool:
    """Abort a transaction and fence its producer; False if it has ended, or its id has another owner."""
    name = opened.transactional_id
    try:
        connection = await connection_to_coordinator(client, name)
        if connection.version_of(END_TXN, newest=END_FENCES_FROM) >= END_FENCES_FROM:
            await end_transaction(
                client, name, producer_id=opened.producer_id, epoch=opened.epoch, commit=False
            )
        else:
            await _claim(client, opened)
    except BrokerError as error:
        if error.code in _GONE or error.code in _ABORTED:
            return False
        raise
    return True


async def _claim(client: KafkaClient, opened: Opened) -> None:
    """InitProducerId in the name of a producer (KIP-360): where EndTxn does not fence it, this does."""
    name = opened.transactional_id
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=60_000,
        producer_id=opened.producer_id,
        producer_epoch=opened.epoch,
    )

    async def attempt() -> None:
        reply = await client.request(INIT_PRODUCER_ID, request, transactional_id=name)
        check(reply.error_code, f"aborting the transaction of {name}")

    await client.retrying(f"aborting the transaction of {name}", attempt)


async def list_opened(client: KafkaClient, prefix: str) -> list[Opened]:
    """The transactions that are open under transactional ids that begin with a prefix."""
    return [
        Opened(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in await list_transactions(client, states=[ONGOING])
        if each.transactional_id.startswith(prefix)
    ]


class Attempt:
    """The transaction of one attempt of a task. It begins with the first partition that joins.

    Used in the loop of a link. `opened` is known from `begin` on.
    """

    def __init__(self, name: str, *, timeout_ms: int) -> None:
        self.name = name
        self.opened: Opened | None = None
        self.has_joined = False
        self._timeout_ms = timeout_ms
        self._joined: set[TopicPartition] = set()
        self._waiting: dict[TopicPartition, None] = {}
        self._joining = asyncio.Lock()

    @property
    def transactional_id(self) -> str:
        assert self.opened is not None, "it has begun"
        return self.opened.transactional_id

    async def begin(self, client: KafkaClient) -> tuple[int, int]:
        """Take the first transactional id under which nothing is open; the identity for its batches."""
        for further in range(_NAMES_MAX):
            name = f"{self.name}.{further}" if further else self.name
            if not await _is_busy(client, name):
                self.opened = await init(client, name, timeout_ms=self._timeout_ms)
                return self.opened.producer_id, self.opened.epoch
        raise FencedAttempt(
            f"transactions are open under {self.name} and its {_NAMES_MAX - 1} further transactional ids."
            " Try: tailrace txn list --state Ongoing"
        )

    async def join(self, client: KafkaClient, partition: TopicPartition) -> None:
        """Have a partition in the transaction; those that ask meanwhile share the next request."""
        if partition in self._joined:
            return
        self._waiting[partition] = None
        async with self._joining:
            if partition in self._joined:
                return
            together = list(self._waiting)
            self._waiting.clear()
            assert self.opened is not None, "an identity comes before the first batch"
            self.has_joined = True
            await join(client, self.opened, together)
            self._joined.update(together)


async def _is_busy(client: KafkaClient, name: str) -> bool:
    """Whether a transaction is open under a transactional id: Kafka's InitProducerId would abort it."""
    try:
        found = await describe_transaction(client, name)
    except BrokerError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return False
        raise
    return found.state in _BUSY
