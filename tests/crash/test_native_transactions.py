"""Read-process-write under kill -9 of broker and workers, over the native protocol: one invoice per order.

Workers take orders from a subscription, publish an invoice for each and acknowledge the order in the same
transaction. The broker and the workers are killed at random moments, with SIGKILL, and started again.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tailrace
from tailrace.client import BrokerClient
from tailrace.client.kafka import KafkaClient
from tailrace.client.transaction_admin import list_transactions
from tailrace.testing.chaos import BrokerProcess

_PAUSE_S = 0.05
_PATIENCE_S = 120
_ORDERS, _INVOICES, _SUBSCRIPTION = "orders", "invoices", "billing"
_WORKER = """
import sys, time
from tailrace.client import BrokerClient
from tailrace.client.error import ClientError

port, name, pause_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
with BrokerClient(port=port, connect_timeout_s=60) as client:
    for order in client.subscribe_to_subscription("billing", prefetch=5):
        try:
            with client.transaction(name or None) as tx:
                tx.publish("invoices", order.body, number=order.offset)
                time.sleep(pause_s)
                tx.publish("audit", b"by " + name.encode())
                tx.ack(order)
            print("committed", order.offset, flush=True)
        except ClientError as error:
            print("not committed", order.offset, type(error).__name__, flush=True)
"""


class Worker:
    """A process that works until it is killed."""

    def __init__(self, directory: Path, number: int, *, port: int, own_name: bool) -> None:
        self._notes = directory / f"worker-{number}"
        name = f"worker-{number}" if own_name else ""
        self._command = [sys.executable, "-c", _WORKER, str(port), name, "0.01"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._notes.open("ab") as notes:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=notes, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    @property
    def text(self) -> str:
        return self._notes.read_text(encoding="utf-8")

    @property
    def committed(self) -> int:
        return self.text.count("\ncommitted") + self.text.startswith("committed")


def wait_until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    """Ask again and again: what another process did cannot wake us."""
    end = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"not within {_PATIENCE_S} s: {what()}"
        time.sleep(_PAUSE_S)


def lag(port: int) -> int:
    with BrokerClient(port=port, connect_timeout_s=_PATIENCE_S) as client:
        found: int = client.describe_subscription(_SUBSCRIPTION)["lag"]
    return found


def open_transactions(broker: BrokerProcess) -> list[str]:
    """The transactional ids whose transaction is open."""

    async def ask() -> list[str]:
        async with KafkaClient(f"127.0.0.1:{broker.kafka_port}", client_id="test") as client:
            return [each.transactional_id for each in await list_transactions(client, states=["Ongoing"])]

    return asyncio.run(ask())


def wait_commit(workers: Sequence[Worker], port: int) -> None:
    """Wait until one more order is done, or all are."""
    before = sum(worker.committed for worker in workers)
    wait_until(
        lambda: sum(worker.committed for worker in workers) > before or not lag(port),
        lambda: [worker.text[-500:] for worker in workers],
    )


def run_kills(path: Path, seed: int, *, orders: int, rounds: int) -> None:
    """Kill, let everything be worked off, and count the invoices."""
    rng = random.Random(seed)
    with BrokerProcess(path) as broker:
        port = broker.native_port
        with BrokerClient(port=port) as client:
            for topic in (_ORDERS, _INVOICES, "audit"):
                client.create_topic(topic)
            client.create_subscription(_SUBSCRIPTION, _ORDERS, ack_timeout_ms=2_000, max_deliveries=0)
            for number in range(orders):
                client.publish(_ORDERS, b"order %d" % number)
        workers = [Worker(path, number, port=port, own_name=number == 0) for number in range(3)]
        for worker in workers:
            worker.start()
        try:
            for number in range(rounds):
                wait_commit(workers, port)
                time.sleep(rng.random() * 0.2)
                if number % 2:
                    broker.kill()
                    broker.start()
                else:
                    victim = rng.choice(workers)
                    victim.kill()
                    victim.start()
            wait_until(lambda: not lag(port), lambda: [worker.text[-500:] for worker in workers])
        finally:
            for worker in workers:
                worker.kill()
        # A worker that was killed with the broker leaves its transaction open until its timeout, and readers
        # of committed records wait for it.
        wait_until(lambda: not open_transactions(broker), lambda: open_transactions(broker))
        broker.stop()
    texts = [worker.text for worker in workers]
    assert not any("Traceback" in text for text in texts), texts
    with tailrace.Broker(data_dir=broker.data_dir) as reader:
        invoices = Counter(record.value for record in reader.read(_INVOICES))
        audits = sum(1 for _ in reader.read("audit"))
    wrong = {value: count for value, count in invoices.items() if count != 1}
    assert (len(invoices), wrong) == (orders, {}), texts
    assert audits == orders, "a transaction is there as a whole"


@pytest.mark.slow
def test_each_order_has_one_invoice_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed, orders=150, rounds=4)


@pytest.mark.heavy
def test_each_order_has_one_invoice_after_forty_kills(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed, orders=2_500, rounds=40)
