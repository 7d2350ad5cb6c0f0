"""The transactions that one client has open: what it publishes and acknowledges in one step.

    TXN_BEGIN -> PUBLISH, PUBLISH_BATCH with `_transaction` -> TXN_COMMIT with acknowledgements, or TXN_ABORT

- A transaction belongs to its connection. When that is lost, what is open is aborted at once.
- Its name on the wire is that of its producer, `<producer id>/<epoch>`, which no other transaction has. A
  client that lost the answer to its TXN_COMMIT repeats it on its next connection, and is told the outcome.
- A refused request costs the whole transaction: the client may have sent others behind it.
- With a transactional id of its own a client takes over from the last one that used it. Without one it is
  lent an id of the node. No other client gets that id for a while after a commit, which may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.transactions.acknowledging import aborted
from tailrace.broker.transactions.api import BUMPING_VERSION, Identity
from tailrace.broker.transactions.pool import Pooled
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.native.errors import RETRIABLE
from tailrace.native.property import refusal, shown

if TYPE_CHECKING:
    from tailrace.broker.partition import Appended, Partition
    from tailrace.broker.publishing import NewMessage, Published, Publisher
    from tailrace.broker.transactions.acknowledging import Acknowledgement
    from tailrace.broker.transactions.handle import TransactionHandle
    from tailrace.native.protocol import NativeProtocol
    from tailrace.records import Batch

_SEQUENCE_MAX = (1 << 31) - 1


class OpenTransaction:
    """One transaction from its begin to its end."""

    __slots__ = ("_sequences", "failure", "handle", "identity", "is_ending", "pooled")

    def __init__(self, handle: TransactionHandle, identity: Identity, pooled: Pooled | None) -> None:
        self.handle = handle
        self.identity = identity
        self.pooled = pooled
        self.failure = ""  # why it cannot commit any more
        self.is_ending = False
        self._sequences: dict[Partition, int] = {}  # how many messages each partition has

    def __repr__(self) -> str:
        return f"<OpenTransaction {self.name} of {self.handle.id}>"

    @property
    def name(self) -> str:
        return name_of(self.identity)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was published in it."""
        return not self._sequences

    def publish(
        self, publisher: Publisher, partition: Partition, messages: Sequence[NewMessage]
    ) -> Published:
        """Sequence messages; BrokerError, and then it cannot commit any more."""

        def append(batch: Batch, stamp_ms: int | None) -> Appended:
            return self.handle.append(
                partition,
                batch,
                client_version=BUMPING_VERSION,
                append_time_ms=stamp_ms,
                keys_checked=True,
            )

        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + len(messages)) & _SEQUENCE_MAX
        return publisher.publish_transactional(
            partition,
            messages,
            producer_id=self.identity.producer_id,
            epoch=self.identity.epoch,
            sequence=sequence,
            append=append,
        )

    def fail(self, error: Exception) -> None:
        """A request of it was refused."""
        self.failure = self.failure or str(error)


class Transacting:
    """The transactions of one client."""

    __slots__ = ("_beginning", "_identities", "_is_closed", "_lent", "_open", "_protocol")

    def __init__(self, protocol: NativeProtocol) -> None:
        self._protocol = protocol
        self._open: dict[str, OpenTransaction] = {}
        self._beginning = 0
        self._identities: dict[str, Identity] = {}  # by the client's own ids: for its next transaction
        self._lent: dict[str, Pooled] = {}  # ids of the node that are idle, and kept for a while
        self._is_closed = False

    def find(self, name: str) -> OpenTransaction:
        """The open transaction of this name, for something that belongs to it.

        INVALID_TXN_STATE if there is none, CONCURRENT_TRANSACTIONS while it ends.
        """
        found = self.get(name)
        if found is None:
            raise BrokerError(
                f"no transaction {shown(name)} is open on this connection. Begin one with TXN_BEGIN; when a "
                "connection is lost its transactions are aborted",
                code=ErrorCode.INVALID_TXN_STATE,
            )
        if found.is_ending:
            raise BrokerError(
                f"transaction {found.name} is being committed or aborted",
                code=ErrorCode.CONCURRENT_TRANSACTIONS,
            )
        return found

    def get(self, name: str) -> OpenTransaction | None:
        """The transaction of this name that is open on this connection, or ending."""
        return self._open.get(name)

    # ---- from begin to end

    async def begin(self, transactional_id: str, *, timeout_ms: int) -> OpenTransaction:
        """Begin a transaction; with an id of the node if that of the client is empty."""
        config = self._protocol.config
        if len(self._open) + self._beginning >= config.transactions_max:
            raise BrokerError(
                f"this connection has {config.transactions_max} open transactions, which is the most. Commit "
                "or abort one first",
                code=ErrorCode.POLICY_VIOLATION,
            )
        self._beginning += 1
        try:
            if transactional_id:
                begun = await self._begin_own(transactional_id, timeout_ms)
            else:
                begun = await self._begin_lent()
        finally:
            self._beginning -= 1
        if self._is_closed:
            self._drop(begun)
        else:
            self._open[begun.name] = begun
        return begun

    async def commit(self, transaction: OpenTransaction, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Commit, and acknowledge; returns when that is durable.

        After an error that may go away the transaction is still open, and the client may repeat its commit.
        """
        try:
            if transaction.failure:
                raise aborted(f"a request that belongs to it was refused: {transaction.failure}")
            if transaction.pooled is None:  # the right may have gone since it began
                self._protocol.access.transaction(transaction.handle.id, Operation.WRITE)
            following = transaction.identity
            if acknowledgements or not transaction.is_empty:
                following = await transaction.handle.commit(transaction.identity, acknowledgements)
        except BrokerError as error:
            if error.code in RETRIABLE and not self._is_closed:
                transaction.is_ending = False  # the client says it again
            else:
                self._drop(transaction)
            raise
        except BaseException:
            self._drop(transaction)
            raise
        self._ended(transaction, following)

    async def abort(self, transaction: OpenTransaction) -> None:
        """Abort; returns when that is durable."""
        try:
            following = transaction.identity
            if not transaction.is_empty:
                following = await transaction.handle.end(
                    transaction.identity, commit=False, client_version=BUMPING_VERSION
                )
        except BaseException:
            self._drop(transaction)
            raise
        self._ended(transaction, following)

    async def commit_again(self, transactional_id: str, identity: Identity) -> None:
        """What became of a transaction of an earlier connection (`TransactionHandle.commit_again`)."""
        await self._protocol.access.begun_transaction(transactional_id).commit_again(identity)

    def close(self) -> None:
        """The client is gone: what is open, and not being committed or aborted, is aborted."""
        self._is_closed = True
        for transaction in list(self._open.values()):
            if not transaction.is_ending:
                self._drop(transaction)

    # ---- inside

    async def _begin_own(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        handle = self._protocol.access.transaction(transactional_id, Operation.WRITE)
        identity = self._identities.pop(transactional_id, None)
        if identity is None:
            identity = await handle.init(timeout_ms=timeout_ms)
        return OpenTransaction(handle, identity, None)

    async def _begin_lent(self) -> OpenTransaction:
        access = self._protocol.access
        if self._lent:
            _, pooled = self._lent.popitem()
        else:
            pooled = await access.take_transactional_id()
        return OpenTransaction(access.pooled_transaction(pooled.transactional_id), pooled.identity, pooled)

    def _ended(self, transaction: OpenTransaction, following: Identity) -> None:
        """It was committed or aborted; its id goes on with another identity."""
        self._open.pop(transaction.name, None)
        if transaction.pooled is not None:
            self._keep(transaction.pooled._replace(identity=following))
        elif not self._is_closed:
            identities = self._identities
            identities[transaction.handle.id] = following
            if len(identities) > self._protocol.config.transactions_max:
                del identities[next(iter(identities))]

    def _keep(self, pooled: Pooled) -> None:
        """Keep an id of the node: its commit may be said again until it is given back."""
        self._lent[pooled.transactional_id] = pooled
        service = self._protocol.service
        service.loop.call_later(service.config.commit_again_s, self._give_back_idle, pooled)

    def _give_back_idle(self, pooled: Pooled) -> None:
        if self._lent.get(pooled.transactional_id) == pooled:  # else it was used since
            del self._lent[pooled.transactional_id]
            self._protocol.access.give_back_transactional_id(pooled)

    def _drop(self, transaction: OpenTransaction) -> None:
        """Abort what is open of it, and use its identity no more."""
        self._open.pop(transaction.name, None)
        transaction.handle.abandon()
        if transaction.pooled is not None:
            service = self._protocol.service
            wait_s = 0.0 if transaction.is_empty else service.config.commit_again_s
            service.loop.call_later(
                wait_s, self._protocol.access.give_back_transactional_id, transaction.pooled
            )


def name_of(identity: Identity) -> str:
    """The name of a transaction on the wire."""
    return f"{identity.producer_id}/{identity.epoch}"


def identity_of(name: str) -> Identity:
    """The producer of a transaction with this name; INVALID_REQUEST."""
    producer_id, slash, epoch = name.partition("/")
    texts = (producer_id, epoch)
    if not slash or not all(text.isascii() and text.isdigit() and len(text) <= 18 for text in texts):
        raise refusal(f'_transaction = "{shown(name)}" is not a producer id, a slash and an epoch')
    return Identity(int(producer_id), int(epoch))
