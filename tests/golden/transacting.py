"""Transactions for a golden directory, by clients whose steps are known; and a look at what is kept.

`Named` shows its producer id and epoch, so that the test can end its transactions years later. librdkafka
does not; the broker is asked for them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.golden import wire
from tests.golden.ledger import Ledger
from tests.golden.observation import observe
from tests.golden.opening import get, http_of
from tests.interop.raw import connect, read_frame, request, text

from tailrace.client.kafka import KafkaClient
from tailrace.client.transaction_admin import end_transaction
from tailrace.model import TopicPartition
from tailrace.records import build_batch
from tailrace.spark import transacting
from tailrace.spark.transacting import Opened

TIMEOUT_MS = 900_000  # the longest that a broker takes: nothing times out while a test looks
Writes = Mapping[TopicPartition, list[bytes]]
T = TypeVar("T")


def with_client(bootstrap: str, work: Callable[[KafkaClient], Awaitable[T]]) -> T:
    """What some work with a client of the Kafka protocol results in."""

    async def run() -> T:
        async with KafkaClient(bootstrap) as client:
            return await work(client)

    return asyncio.run(run())


class Named:
    """A transactional id whose transactions are begun, written and ended one by one."""

    def __init__(self, bootstrap: str, ledger: Ledger, name: str) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._name = name
        self._count = 0

    def write(self, writes: Writes, *, at_ms: int, key: bytes = b"") -> tuple[str, Opened]:
        """Open a transaction and write to it: its name in the ledger, and its identity.

        The records of a partition have numbered keys that begin with `key`, or all the same one.
        """
        self._count += 1

        async def work(client: KafkaClient) -> Opened:
            opened = await transacting.init(client, self._name, timeout_ms=TIMEOUT_MS)
            await transacting.join(client, opened, list(writes))
            for (topic, partition), values in writes.items():
                batch = build_batch(
                    [
                        (at_ms + number, b"%s%d" % (key, number) if key else b"t", value, ())
                        for number, value in enumerate(values)
                    ],
                    producer_id=opened.producer_id,
                    producer_epoch=opened.epoch,
                    base_sequence=0,
                    transactional=True,
                )
                await client.produce(topic, partition, bytes(batch), transactional_id=self._name)
            return opened

        opened = with_client(self._bootstrap, work)
        transaction = f"{self._name}/{self._count}"
        for (topic, partition), values in writes.items():
            self._ledger.wrote(topic, partition, values, transaction)
        return transaction, opened

    def run(self, writes: Writes, *, commit: bool, at_ms: int, key: bytes = b"") -> Opened:
        """A whole transaction."""
        transaction, opened = self.write(writes, at_ms=at_ms, key=key)
        end(self._bootstrap, opened, commit=commit)
        self._ledger.ended(transaction, commit=commit)
        return opened


def end(bootstrap: str, opened: Opened, *, commit: bool) -> None:
    """End a transaction in the name of its producer, or repeat that; BrokerError if it ended otherwise."""
    name, producer_id, epoch = opened
    with_client(
        bootstrap,
        lambda client: end_transaction(client, name, producer_id=producer_id, epoch=epoch, commit=commit),
    )


def prepare(bootstrap: str, opened: Opened) -> bool:
    """Give an open transaction two-phase commit; False if it has ended."""
    return with_client(bootstrap, lambda client: transacting.prepare_opened(client, opened))


def opened_of(data_dir: Path, transactional_id: str) -> Opened:
    """The identity of what is open under a transactional id, as the broker tells it."""
    found = get(f"{http_of(data_dir)}/transactions/{transactional_id}")
    assert found["state"] == "Ongoing", found
    return Opened(transactional_id, found["producer_id"], found["producer_epoch"])


def observe_all(bootstrap: str, data_dir: Path) -> dict[str, Any]:
    """Everything that a server of this directory serves now. The checksums are those of partitions."""
    observed = observe(bootstrap, data_dir)
    for topic in observed["topics"].values():
        topic["partitions"] = [without_checksums(each) for each in topic["partitions"]]
    return {
        **observed,
        "transactions": observe_transactions(bootstrap, data_dir),
        "users": get(f"{http_of(data_dir)}/users")["users"],
    }


def without_checksums(partition: dict[str, Any]) -> dict[str, Any]:
    return {**partition, "batches": [line.rpartition(" sha256 ")[0] for line in partition["batches"]]}


def formats_of(data_dir: Path) -> dict[str, bool]:
    """Whether a directory that is not served has what transactions added to the formats."""
    logs = b"".join(path.read_bytes() for path in sorted(data_dir.glob("*/*.log")))
    return {
        "lists of aborted transactions": any(data_dir.glob("*/*.aborted")),
        "snapshots of format 2": any(
            path.read_bytes()[:8] == b"TRSTATE2" for path in data_dir.glob("*/*.snapshot")
        ),
        "tag 10000 in __transaction_state": b"\x90\x4e\x15" in logs,  # the tag, and its length
        "key kind 3 in __tailrace_cursors": b"\x03\x00\x07workers" in logs,
    }


def observe_transactions(bootstrap: str, data_dir: Path) -> dict[str, Any]:
    """Every transactional id, what is open in partitions, and what is named as aborted."""
    http = http_of(data_dir)
    listed = get(f"{http}/transactions")
    assert not listed["hanging"], listed
    ids = [get(f"{http}/transactions/{each['transactional_id']}") for each in listed["transactions"]]
    with connect(bootstrap) as connection:
        aborted = {
            f"{topic['name']}-{partition}": wire.fetch_aborted(connection, topic["name"], partition, 0)
            for topic in get(f"{http}/topics")["topics"]
            if not topic["internal"]
            for partition in range(topic["partitions"])
        }
    return {
        "ids": [without_age(each) for each in ids],
        "aborted": {place: named for place, named in aborted.items() if named},
    }


def without_age(described: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a transactional id; how long it has been open changes with the clock."""
    return {name: value for name, value in described.items() if name != "open_ms"}


def salt_of(connection: socket.socket, name: str) -> str:
    """The salt that a server names to a user, who need not exist (RFC 5802, SaslHandshake v1)."""
    connection.sendall(request(17, 1, text("SCRAM-SHA-256")))
    assert read_frame(connection)[4:6] == b"\0\0"
    first = f"n,,n={name},r=golden".encode()
    connection.sendall(request(36, 0, struct.pack(">i", len(first)) + first))
    frame = read_frame(connection)
    assert frame[4:6] == b"\0\0", frame
    said = frame[frame.index(b"r=golden") :].decode()
    return next(part for part in said.split(",") if part.startswith("s="))
