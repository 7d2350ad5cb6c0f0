"""Transfers between accounts under kills, power cuts, late requests and zombies: money is never made or lost.

Half of the tellers are librdkafka, half are Tailrace's own client, which has an epoch for every transaction.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.bank import (
    ACCOUNTS,
    PATIENCE_S,
    TOPIC,
    Bank,
    Client,
    ConfluentClient,
    OwnClient,
    make_topics,
    read,
)
from tests.interop.deadline import wait_until
from tests.interop.frame_proxy import FrameProxy
from tests.interop.raw import connect, read_frame, request, text
from tests.interop.server import ServerProcess

from tailrace.testing.faults.mount import LoopFile, Unavailable

confluent_kafka = pytest.importorskip("confluent_kafka")

TELLERS = 4
PRODUCE, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 26, 28
EPOCH_MAX = 32766
_IMAGE_BYTES = 512 << 20


def open_bank(bootstrap: str, rng: random.Random, **settings: object) -> Bank:
    make_topics(bootstrap, tellers=TELLERS)
    clients: list[Client] = []
    for number in range(TELLERS):
        kind = (ConfluentClient, OwnClient)[number % 2]
        clients.append(kind(bootstrap, f"teller-{number}", **settings))
    return Bank(bootstrap, clients, rng)


def wait_for_transfers(bank: Bank, more: int) -> None:
    """So many happen; the transfers themselves are the clock, whatever the machine does."""
    wanted = bank.transfers + more
    wait_until(lambda: bank.transfers >= wanted, within_s=PATIENCE_S, what="no transfers happen")


# ---- kills


@pytest.mark.slow
def test_the_sum_holds_after_kills(own_server: ServerProcess, rng: random.Random) -> None:
    kill_again_and_again(own_server, rng, kills=5)


@pytest.mark.heavy
def test_the_sum_holds_after_a_hundred_kills(own_server: ServerProcess, rng: random.Random) -> None:
    kill_again_and_again(own_server, rng, kills=100)


def kill_again_and_again(server: ServerProcess, rng: random.Random, *, kills: int) -> None:
    bank = open_bank(server.bootstrap, rng)
    for number in range(kills):
        bank.open()
        wait_for_transfers(bank, rng.randint(1, 40))
        if number % 5 == 0:
            bank.look()
        server.kill()
        server.start()
        if number % 5 == 4:
            bank.rest()
            bank.audit()
    bank.rest()
    bank.audit()
    bank.close()
    print(f"{bank.transfers} transfers, {kills} kills")


# ---- power cuts


@pytest.fixture
def loop_file(tmp_path: Path) -> LoopFile:
    try:
        file = LoopFile(tmp_path / "image", tmp_path / "mounted", size_bytes=_IMAGE_BYTES)
        with file.mounted():
            pass
    except Unavailable as reason:
        pytest.skip(str(reason))
    return file


@pytest.mark.slow
def test_the_sum_holds_after_power_cuts(loop_file: LoopFile, rng: random.Random) -> None:
    cut_again_and_again(loop_file, rng, cuts=2)


@pytest.mark.heavy
def test_the_sum_holds_after_many_power_cuts(loop_file: LoopFile, rng: random.Random) -> None:
    cut_again_and_again(loop_file, rng, cuts=20)


def cut_again_and_again(file: LoopFile, rng: random.Random, *, cuts: int) -> None:
    server = ServerProcess(file.path / "data")
    bank: Bank | None = None
    for _ in range(cuts):
        with file.mounted():
            server.start()
            try:
                if bank is None:
                    bank = open_bank(server.bootstrap, rng)
                else:
                    bank.rest()
                    bank.audit()
                bank.open()
                wait_for_transfers(bank, rng.randint(1, 60))
                bank.look()
                file.cut_power()
            finally:
                server.kill()
    assert bank is not None
    with file.mounted():
        server.start()
        try:
            bank.rest()
            bank.audit()
            bank.close()
        finally:
            server.kill()
    print(f"{bank.transfers} transfers, {cuts} power cuts")


# ---- late requests


@pytest.fixture
def proxy(rng: random.Random) -> Iterator[FrameProxy]:
    held = (PRODUCE, END_TXN, TXN_OFFSET_COMMIT)
    with FrameProxy(held=held, chance=0.05, hold_s=2.5, rng=rng) as running:
        yield running


@pytest.mark.slow
def test_the_sum_holds_while_requests_come_late(
    proxy: FrameProxy, tmp_path: Path, rng: random.Random
) -> None:
    hold_requests(proxy, tmp_path, rng, late=5)


@pytest.mark.heavy
def test_the_sum_holds_while_many_requests_come_late(
    proxy: FrameProxy, tmp_path: Path, rng: random.Random
) -> None:
    hold_requests(proxy, tmp_path, rng, late=150)


def hold_requests(proxy: FrameProxy, tmp_path: Path, rng: random.Random, *, late: int) -> None:
    """Clients give up on a request before it arrives, and repeat it on another connection."""
    with ServerProcess(tmp_path / "data", server={"advertised": f"127.0.0.1:{proxy.port}"}) as server:
        proxy.upstream = server.port
        bank = open_bank(f"127.0.0.1:{proxy.port}", rng)
        bank.close()
        clients: list[Client] = []
        for number in range(TELLERS):
            if number % 2:
                own: Client = OwnClient(
                    f"127.0.0.1:{proxy.port}", f"late-{number}", **{"request.timeout.ms": 600}
                )
                clients.append(own)
            else:
                clients.append(
                    ConfluentClient(f"127.0.0.1:{proxy.port}", f"late-{number}", **{"socket.timeout.ms": 600})
                )
        bank = Bank(server.bootstrap, clients, rng)
        while proxy.late < late:
            bank.open()
            wait_for_transfers(bank, 10)
            bank.rest()
            bank.audit()
        bank.close()
        print(f"{bank.transfers} transfers, {proxy.holds} held, {proxy.late} late")


# ---- zombies


def test_ten_producers_of_one_id_commit_only_what_each_of_them_was_told(
    own_server: ServerProcess, rng: random.Random
) -> None:
    """Everyone takes the id over from the others, as often as it is fenced."""
    bootstrap = own_server.bootstrap
    make_topics(bootstrap, tellers=1)
    committed: set[bytes] = set()
    refused: set[bytes] = set()
    enough = threading.Event()
    failures: list[BaseException] = []

    def contend(number: int) -> None:
        try:
            for attempt in range(1000):
                if enough.is_set():
                    return
                contend_once(b"%d:%d:0" % (number, attempt))
        except BaseException as error:
            failures.append(error)

    def contend_once(value: bytes) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "one", "linger.ms": 0, "log_level": 0}
        )
        try:
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
            for account in range(ACCOUNTS):
                producer.produce(TOPIC, value, partition=account)
            producer.commit_transaction(PATIENCE_S)
            committed.add(value)
        except confluent_kafka.KafkaException as error:
            if not (error.args[0].fatal() or error.args[0].txn_requires_abort()):
                raise
            refused.add(value)
        finally:
            producer.purge()
        if len(committed) >= 10 and len(refused) >= 10:
            enough.set()

    threads = [threading.Thread(target=contend, args=(number,), daemon=True) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures and enough.is_set(), failures
    last = ConfluentClient(bootstrap, "one")  # aborts what is open
    for account in range(ACCOUNTS):
        assert set(read(bootstrap, account)) == committed
    last.close()


# ---- the last epoch


@pytest.mark.heavy
def test_an_id_goes_on_after_its_last_epoch(own_server: ServerProcess) -> None:
    """Every abort takes an epoch (EndTxn 5): up to the last one, and over it. Then other clients go on."""
    bootstrap = own_server.bootstrap
    make_topics(bootstrap, tellers=1)
    with connect(bootstrap) as connection:
        first, epoch = init_producer(connection, "old")
        in_flight = 0
        identity = (first, epoch)
        for sent in range(epoch, EPOCH_MAX + 1):
            connection.sendall(end_txn("old", first, sent, commit=False))
            in_flight += 1
            if in_flight == 200:
                identity = [ended(read_frame(connection)) for _ in range(in_flight)][-1]
                in_flight = 0
        for _ in range(in_flight):
            identity = ended(read_frame(connection))
        second, epoch = identity
        assert second != first and epoch == 0
    client = ConfluentClient(bootstrap, "old")
    assert client.transfer({0: b"0:0:-1", 1: b"0:0:1"}, position=None, commit=True)
    own = OwnClient(bootstrap, "old")
    assert own.transfer({0: b"0:1:-1", 1: b"0:1:1"}, position=None, commit=True)
    assert read(bootstrap, 0) == [b"0:0:-1", b"0:1:-1"] and read(bootstrap, 1) == [b"0:0:1", b"0:1:1"]
    own_server.kill()
    own_server.start()
    assert read(bootstrap, 0) == [b"0:0:-1", b"0:1:-1"]
    assert own.transfer({0: b"0:2:-1"}, position=None, commit=True)
    own.close()
    client.close()


def init_producer(connection: object, name: str) -> tuple[int, int]:
    """InitProducerId v1, which has plain encoding."""
    body = text(name) + struct.pack(">i", 60_000)
    connection.sendall(request(INIT_PRODUCER_ID, 1, body))  # type: ignore[attr-defined]
    frame = read_frame(connection)  # type: ignore[arg-type]
    error, producer_id, epoch = struct.unpack_from(">hqh", frame, 8)
    assert error == 0, f"InitProducerId answered {error}"
    return producer_id, epoch


def end_txn(name: str, producer_id: int, epoch: int, *, commit: bool) -> bytes:
    """EndTxn v5, which is flexible: a header of version 2, compact strings, tags."""
    data = name.encode()
    body = bytes([len(data) + 1]) + data + struct.pack(">qh?", producer_id, epoch, commit) + b"\0"
    head = struct.pack(">hhi", END_TXN, 5, 7) + text("raw") + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def ended(frame: bytes) -> tuple[int, int]:
    """The identity that an answer to EndTxn v5 names."""
    error, producer_id, epoch = struct.unpack_from(">hqh", frame, 4 + 1 + 4)
    assert error == 0, f"EndTxn answered {error}"
    return producer_id, epoch
