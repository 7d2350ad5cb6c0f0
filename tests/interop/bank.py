"""A bank: tellers move money between accounts in transactions, and the sum of all accounts stays zero.

A transfer takes an amount from one account and adds it to another one. Accounts are the partitions of a
topic; a value says which teller, which transfer, and how much. Some transfers also commit a position of the
teller in a group, and some are aborted. Tellers go on over everything that a client may go on over.

`audit` wants the tellers at rest: then every transfer is there whole or not at all, as its teller knows, and
the sum is zero. What a reader saw at any time before is there for ever.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import confluent_kafka
from tests.interop.deadline import wait_until

from tailrace.client import MessageProducer, ProducerRecord, TopicPartition
from tailrace.client.error import TimedOut, TransactionFailed

ACCOUNTS, TOPIC, GROUP, REQUESTS = 4, "accounts", "tellers", "requests"
PATIENCE_S = 120
_CALL_S = 5
"""librdkafka may lose track of offsets that it sends while its coordinator comes back: AddOffsetsToTxn is
answered, TxnOffsetCommit is never sent, and the call waits for its time limit. Called again, it goes on."""
_ABORTS = 0.2
_POSITIONS = 0.3


class Client(Protocol):
    """A transactional producer that goes on by itself over everything that it may."""

    def transfer(
        self, values: dict[int, bytes], *, position: tuple[int, int] | None, commit: bool
    ) -> bool: ...
    def close(self) -> None: ...


class ConfluentClient:
    """librdkafka: one epoch for all transactions of a producer (no KIP-890 part 2)."""

    def __init__(self, bootstrap: str, name: str, **settings: object) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(config | settings)
        # A consumer that never joins: its metadata is what a position is committed with.
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0}
        )
        self._again(lambda: self._producer.init_transactions(_CALL_S))

    def transfer(self, values: dict[int, bytes], *, position: tuple[int, int] | None, commit: bool) -> bool:
        producer = self._producer
        producer.begin_transaction()
        for account, value in values.items():
            producer.produce(TOPIC, value, partition=account)
        if position is not None:
            teller, number = position
            offsets = [confluent_kafka.TopicPartition(REQUESTS, teller, number)]
            metadata = self._consumer.consumer_group_metadata()
            commit &= self._again(lambda: producer.send_offsets_to_transaction(offsets, metadata, _CALL_S))
        if commit and self._again(lambda: producer.commit_transaction(_CALL_S)):
            return True
        while not self._again(lambda: producer.abort_transaction(_CALL_S)):
            pass  # the abort itself found that it has to be asked for again
        return False

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()

    @staticmethod
    def _again(call: Callable[[], object]) -> bool:
        """Call until it succeeds; False if the transaction is to be aborted instead."""
        while True:
            try:
                call()
            except confluent_kafka.KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort():
                    return False
                if not reason.retriable():
                    raise
            else:
                return True


class OwnClient:
    """Tailrace's own Kafka client, which takes a new epoch for every transaction (KIP-890 part 2)."""

    def __init__(self, bootstrap: str, name: str, **settings: object) -> None:
        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "request.timeout.ms": "10000"}
        more = {key: str(value) for key, value in settings.items()}
        self._producer = MessageProducer(config | more)
        self._again(self._producer.init_transactions)

    def transfer(self, values: dict[int, bytes], *, position: tuple[int, int] | None, commit: bool) -> bool:
        producer = self._producer
        producer.begin_transaction()
        try:
            for account, value in values.items():
                producer.send(ProducerRecord(TOPIC, value=value, partition=account))
            if position is not None:
                teller, number = position
                offsets = {TopicPartition(REQUESTS, teller): number}
                producer.send_offsets_to_transaction(offsets, GROUP)
            if commit:
                self._again(producer.commit_transaction)
                return True
        except TransactionFailed:
            pass
        self._again(producer.abort_transaction)
        return False

    def close(self) -> None:
        self._producer.close(timeout_ms=PATIENCE_S * 1000)

    @staticmethod
    def _again(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except TimedOut:
                continue
            return


class Teller(threading.Thread):
    """Makes transfers while the bank is open."""

    def __init__(self, number: int, client: Client, rng: random.Random) -> None:
        super().__init__(daemon=True, name=f"teller-{number}")
        self.number = number
        self.outcomes: list[bool] = []  # of each transfer: whether it was committed
        self.position = -1  # that was committed last
        self.failure: BaseException | None = None
        self.resting = threading.Event()
        self.opened = threading.Event()
        self.closed = False
        self._client = client
        self._rng = rng

    def run(self) -> None:
        try:
            while True:
                if not self.opened.is_set():
                    self.resting.set()
                    self.opened.wait()
                if self.closed:
                    return
                self._transfer()
        except BaseException as error:
            self.failure = error
            self.resting.set()

    def _transfer(self) -> None:
        rng, number = self._rng, len(self.outcomes)
        debit, credit = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randint(1, 100)
        values = {
            debit: b"%d:%d:%d" % (self.number, number, -amount),
            credit: b"%d:%d:%d" % (self.number, number, amount),
        }
        position = (self.number, number) if rng.random() < _POSITIONS else None
        committed = self._client.transfer(values, position=position, commit=rng.random() >= _ABORTS)
        self.outcomes.append(committed)
        if committed and position is not None:
            self.position = number


class Bank:
    """Some tellers, and a reader that looks on."""

    def __init__(self, bootstrap: str, clients: list[Client], rng: random.Random) -> None:
        self._bootstrap = bootstrap
        self._clients = clients
        self._tellers = [
            Teller(number, client, random.Random(rng.getrandbits(32)))
            for number, client in enumerate(clients)
        ]
        self._seen: set[bytes] = set()
        for teller in self._tellers:
            teller.start()

    @property
    def transfers(self) -> int:
        return sum(len(teller.outcomes) for teller in self._tellers)

    def open(self) -> None:
        for teller in self._tellers:
            teller.resting.clear()
            teller.opened.set()

    def rest(self) -> None:
        """Let every teller end what it has begun."""
        for teller in self._tellers:
            teller.opened.clear()
        for teller in self._tellers:
            assert teller.resting.wait(PATIENCE_S * 2), f"{teller.name} does not end its transfer"
            if teller.failure is not None:
                raise AssertionError(f"{teller.name} failed") from teller.failure

    def look(self) -> None:
        """Note what a reader sees now."""
        for account in range(ACCOUNTS):
            self._seen.update(read(self._bootstrap, account))

    def audit(self) -> None:
        """The tellers are at rest: everything is whole, and as they know it."""
        shown = [read(self._bootstrap, account) for account in range(ACCOUNTS)]
        values = [value for account in shown for value in account]
        assert len(values) == len(set(values)), "a record is there twice"
        assert self._seen <= set(values), "a record that was read is gone"
        assert sum(int(value.split(b":")[2]) for value in values) == 0, "the sum is not zero"
        halves = Counter(tuple(map(int, value.split(b":")[:2])) for value in values)
        for teller in self._tellers:
            for number, committed in enumerate(teller.outcomes):
                found = halves.pop((teller.number, number), 0)
                assert found == (2 if committed else 0), f"{teller.name}, {number}: {committed=}, {found=}"
        assert not halves, f"transfers that no teller made: {halves}"
        for teller in self._tellers:
            wait_until(
                lambda t=teller: position(self._bootstrap, t.number) == t.position,  # type: ignore[misc]
                within_s=PATIENCE_S,
                what=lambda t=teller: f"{position(self._bootstrap, t.number)}, not {t.position}",  # type: ignore[misc]
            )

    def close(self) -> None:
        for teller in self._tellers:
            teller.closed = True
            teller.opened.set()
        for teller, client in zip(self._tellers, self._clients, strict=True):
            teller.join(PATIENCE_S)
            client.close()


def make_topics(bootstrap: str, *, tellers: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(TOPIC, ACCOUNTS, 1), NewTopic(REQUESTS, tellers, 1)]
    for made in admin.create_topics(wanted).values():
        made.result(PATIENCE_S)


def read(bootstrap: str, account: int) -> list[bytes]:
    """Every committed record of an account, up to its end when this begins."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditors",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    at_end = False
    target = confluent_kafka.TopicPartition(TOPIC, account, 0)

    def poll() -> bool:
        nonlocal at_end
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
                at_end |= (message.offset() or 0) >= end - 1  # the end is told by an event only if it stays
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                at_end = True
        return at_end

    try:
        _, end = consumer.get_watermark_offsets(target, PATIENCE_S)
        consumer.assign([target])
        wait_until(poll, within_s=PATIENCE_S, what=f"account {account} has no end")
        return values
    finally:
        consumer.close()


def position(bootstrap: str, teller: int) -> int:
    """The position of a teller, -1 without one, by a consumer that requires it to be stable."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(REQUESTS, teller)], PATIENCE_S)
        assert found.error is None
        return max(int(found.offset), -1)
    finally:
        consumer.close()
