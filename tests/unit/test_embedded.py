"""`tailrace.Broker` and `tailrace.AsyncBroker`: real nodes in this process, in memory and on disk."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.poison import undecodable

import tailrace
from tailrace.broker import Partition
from tailrace.client import admin
from tailrace.client.kafka import KafkaClient
from tailrace.model import (
    BrokerError,
    ConfigError,
    ErrorCode,
    Offset,
    OffsetOutOfRange,
    StorageError,
    TailraceError,
    TopicPartition,
)
from tailrace.records import read_batch
from tailrace.testing.port import free_port


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


def values(broker: tailrace.Broker, topic: str, **where: int) -> list[bytes | None]:
    return [record.value for record in broker.read(topic, **where)]


def open_files() -> set[str]:
    """What this process holds open, but for the directory being listed."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{descriptor} {os.readlink(f'/proc/self/fd/{descriptor}')}")
        except FileNotFoundError:
            continue
    return found


# ---- producing and reading


def test_what_is_produced_is_read(broker: tailrace.Broker) -> None:
    broker.produce("orders", b"v", key=b"k")
    assert [record.value for record in broker.read("orders")] == [b"v"]


def test_a_record_comes_back_as_it_was(broker: tailrace.Broker) -> None:
    headers = [("a", b"1"), ("a", None)]
    place = broker.produce("orders", b"v", key=b"k", headers=headers, timestamp=1234)
    assert place == (0, 0)
    (record,) = broker.read("orders")
    assert (record.value, record.key, record.headers) == (b"v", b"k", (("a", b"1"), ("a", None)))
    assert (record.timestamp, record.topic, record.partition, record.offset) == (1234, "orders", 0, 0)


def test_a_tombstone_has_no_value(broker: tailrace.Broker) -> None:
    broker.produce("orders", None, key=b"k")
    assert values(broker, "orders") == [None]


def test_headers_may_be_a_mapping(broker: tailrace.Broker) -> None:
    broker.produce("orders", b"v", headers={"a": b"1"})
    assert next(broker.read("orders")).headers == (("a", b"1"),)


def test_offsets_count_up_within_a_partition(broker: tailrace.Broker) -> None:
    assert [broker.produce("t", b"%d" % number).offset for number in range(5)] == [0, 1, 2, 3, 4]
    assert values(broker, "t") == [b"0", b"1", b"2", b"3", b"4"]


def test_reading_starts_at_an_offset_also_inside_a_batch(broker: tailrace.Broker) -> None:
    for number in range(5):
        broker.produce("t", b"%d" % number)
    assert values(broker, "t", offset=3) == [b"3", b"4"]
    assert values(broker, "t", partition=0, offset=5) == []


def test_reading_ends_at_the_high_watermark_of_its_beginning(broker: tailrace.Broker) -> None:
    broker.produce("t", b"before")
    records = broker.read("t")
    broker.produce("t", b"after")
    assert [record.value for record in records] == [b"before"]


def test_reading_ends_at_the_last_stable_offset(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        broker.produce("t", b"%d" % number)
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "last_stable_offset", property(lambda _: Offset(3)))
        assert values(broker, "t", offset=1) == [b"1", b"2"]
        assert values(broker, "t", offset=4) == []
        with pytest.raises(OffsetOutOfRange):
            values(broker, "t", offset=6)
    assert values(broker, "t", offset=1) == [b"1", b"2", b"3", b"4"]


def test_a_transaction_stores_records_of_several_topics_together(broker: tailrace.Broker) -> None:
    broker.create_topic("orders", partitions=2)
    with broker.transaction() as tx:
        tx.produce("orders", b"a", key=b"k", headers={"h": b"1"}, partition=1)
        tx.produce("audit", b"b")
        tx.publish("orders", b"c", partition=1, timestamp=77)
        assert list(broker.read("orders")) == []
        assert tx.produced == []
    assert [(each.partition, each.offset) for each in tx.produced] == [(1, 0), (0, 0), (1, 1)]
    first, second = broker.read("orders")
    assert (first.value, first.key, first.headers, first.partition) == (b"a", b"k", (("h", b"1"),), 1)
    assert (second.value, second.timestamp) == (b"c", 77)
    assert [record.value for record in broker.read("audit")] == [b"b"]


def test_an_exception_in_a_transaction_stores_nothing(broker: tailrace.Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(KeyError):
        _fill_and_raise(broker)
    assert list(broker.read("orders")) == []


def _fill_and_raise(broker: tailrace.Broker) -> None:
    with broker.transaction() as tx:
        tx.produce("orders", b"a")
        raise KeyError


def test_the_asynchronous_broker_has_transactions_too() -> None:
    async def scenario() -> list[bytes | None]:
        async with tailrace.AsyncBroker() as broker:
            async with broker.transaction() as tx:
                tx.produce("orders", b"a")
                tx.produce("audit", b"b")
            assert len(tx.produced) == 2
            return [record.value async for record in broker.read("audit")]

    assert asyncio.run(scenario()) == [b"b"]


def test_a_record_that_is_refused_costs_the_transaction(broker: tailrace.Broker) -> None:
    broker.create_topic("orders")
    broker.create_topic("small", configs={"max.message.bytes": 200})
    tx = broker.transaction()
    with tx:
        pass
    with pytest.raises(tailrace.TailraceError, match="is over"):
        tx.produce("orders", b"a")
    with pytest.raises(TypeError):
        broker.transaction().produce("orders", "text")  # type: ignore[arg-type]
    tx = broker.transaction()
    tx.produce("orders", b"a")
    tx.produce("small", b"x" * 300)
    with pytest.raises(BrokerError, match=r"max\.message\.bytes"), tx:
        pass
    assert list(broker.read("orders")) == []
    assert tx.produced == []


def test_a_topic_that_comes_by_itself_has_one_partition(broker: tailrace.Broker) -> None:
    broker.produce("t", b"v")
    with pytest.raises(BrokerError) as caught:
        broker.produce("t", b"v", partition=1)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_are_read_one_after_the_other(broker: tailrace.Broker) -> None:
    broker.create_topic("t", partitions=3)
    for number in range(9):
        broker.produce("t", b"%d" % number, partition=number % 3)
    found = [(record.partition, record.value) for record in broker.read("t")]
    assert found == [(number % 3, b"%d" % number) for start in range(3) for number in range(start, 9, 3)]
    assert values(broker, "t", partition=1) == [b"1", b"4", b"7"]


def test_records_with_one_key_share_a_partition_and_those_without_spread(broker: tailrace.Broker) -> None:
    broker.create_topic("t", partitions=4)
    assert len({broker.produce("t", b"v", key=b"k").partition for _ in range(10)}) == 1
    assert len({broker.produce("t", b"v").partition for _ in range(8)}) == 4


def test_large_and_many_records_are_read_in_pieces(broker: tailrace.Broker) -> None:
    large = os.urandom(700_000)
    for number in range(6):
        broker.produce("t", b"%d" % number + large)
    assert [value[:1] for value in values(broker, "t") if value] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_topic_settings_are_obeyed(broker: tailrace.Broker) -> None:
    broker.create_topic("t", configs={"max.message.bytes": "200"})
    with pytest.raises(BrokerError) as caught:
        broker.produce("t", b"x" * 300)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_topic_settings_may_be_numbers_and_truths(broker: tailrace.Broker) -> None:
    broker.create_topic("small", configs={"max.message.bytes": 200, "unclean.leader.election.enable": False})
    with pytest.raises(BrokerError):
        broker.produce("small", b"x" * 300)


def test_a_topic_is_made_once(broker: tailrace.Broker) -> None:
    broker.create_topic("t")
    with pytest.raises(BrokerError) as caught:
        broker.create_topic("t")
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_reading_what_is_not_there_is_refused(broker: tailrace.Broker) -> None:
    with pytest.raises(BrokerError) as caught:
        broker.read("absent")
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.produce("t", b"v")
    with pytest.raises(OffsetOutOfRange):
        values(broker, "t", offset=2)
    with pytest.raises(OffsetOutOfRange):
        values(broker, "t", offset=-1)


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "__consumer_offsets"])
def test_a_bad_topic_name_is_refused(broker: tailrace.Broker, name: str) -> None:
    with pytest.raises(BrokerError):
        broker.produce(name, b"v")


@pytest.mark.parametrize("bad", [{"value": "text"}, {"value": b"v", "key": "text"}, {"value": 7}])
def test_text_must_be_encoded_first(broker: tailrace.Broker, bad: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be bytes or None"):
        broker.produce("t", **bad)  # type: ignore[arg-type]


def test_a_header_must_be_encoded_first(broker: tailrace.Broker) -> None:
    with pytest.raises(TypeError, match="header 'colour' must be bytes or None, not str"):
        broker.produce("t", b"v", headers={"colour": "red"})  # type: ignore[dict-item]


def test_seconds_are_no_timestamp(broker: tailrace.Broker) -> None:
    with pytest.raises(TypeError, match="milliseconds since 1970 as an int, not float"):
        broker.produce("t", b"v", timestamp=1_794_859_372.4)  # type: ignore[arg-type]


def test_a_topic_made_anew_is_not_what_is_being_read(broker: tailrace.Broker) -> None:
    for _ in range(3):
        broker.produce("t", b"v" * 700_000)  # one in a piece
    reading = broker.read("t")
    assert next(reading).offset == 0
    asyncio.run(delete_topic(broker, "t"))
    for _ in range(3):
        broker.produce("t", b"of another topic")
    with pytest.raises(BrokerError, match="deleted and made anew while it was read") as refused:
        list(reading)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def delete_topic(broker: tailrace.Broker, name: str) -> None:
    async with KafkaClient(broker.bootstrap_servers) as client:
        await admin.delete_topic(client, name)


def test_topics_come_by_themselves_only_where_they_may() -> None:
    with tailrace.Broker(configs={"auto.create.topics.enable": False}) as broker:
        with pytest.raises(BrokerError):
            broker.produce("t", b"v")
        broker.create_topic("t")
        broker.produce("t", b"v")


def test_broker_and_topic_settings_have_kafka_s_names() -> None:
    with tailrace.Broker(configs={"num.partitions": 3, "max.message.bytes": 200}) as broker:
        assert {broker.produce("t", b"v").partition for _ in range(6)} == {0, 1, 2}
        with pytest.raises(BrokerError):
            broker.produce("t", b"x" * 300)


@pytest.mark.parametrize(
    "configs", [{"no.such.setting": 1}, {"num.partitions": 0}, {"num.partitions": "many"}]
)
def test_a_wrong_setting_is_refused(configs: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        tailrace.Broker(configs=configs)


def test_other_machines_are_not_served() -> None:
    with pytest.raises(ConfigError, match=r"without encryption.* run a server: tailrace up"):
        tailrace.Broker(host="0.0.0.0")


@pytest.mark.parametrize("name", ["port", "native_port", "http_port"])
@pytest.mark.parametrize("port", [-1, 65_536, "9092"])
def test_a_port_that_is_none_is_refused(name: str, port: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name} = .* must be a whole number from 0 to 65535"):
        tailrace.Broker(**{name: port})  # type: ignore[arg-type]


def test_a_value_that_is_none_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"retention.ms = None must be a text"):
        tailrace.Broker(configs={"retention.ms": None})


# ---- life


def test_it_works_without_with() -> None:
    broker = tailrace.Broker()
    broker.start()
    try:
        broker.produce("t", b"v")
        assert values(broker, "t") == [b"v"]
    finally:
        broker.close()
    broker.close()


def test_a_closed_broker_says_so_and_may_start_again() -> None:
    broker = tailrace.Broker()
    with pytest.raises(TailraceError, match="not started"):
        broker.produce("t", b"v")
    with pytest.raises(TailraceError, match="not started"):
        broker.read("t")
    with pytest.raises(TailraceError, match="not started"):
        _ = broker.bootstrap_servers
    for _ in range(2):
        with broker:
            assert broker.produce("t", b"v").offset == 0  # in memory: nothing of the first life is left


def test_starting_twice_is_refused(broker: tailrace.Broker) -> None:
    with pytest.raises(TailraceError, match="started already"):
        broker.start()
    broker.produce("t", b"v")


def test_several_live_beside_each_other() -> None:
    with tailrace.Broker() as first, tailrace.Broker() as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        first.produce("t", b"1")
        second.produce("t", b"2")
        assert (values(first, "t"), values(second, "t")) == ([b"1"], [b"2"])


def test_many_threads_may_use_it(broker: tailrace.Broker) -> None:
    def produce(number: int) -> None:
        for _ in range(20):
            broker.produce("t", b"%d" % number)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(values(broker, "t")) == 100


def test_its_port_takes_connections_and_is_given_back() -> None:
    address = ("127.0.0.1", free_port())
    with tailrace.Broker(kafka_port=address[1]):
        socket.create_connection(address, timeout=60).close()
    with pytest.raises(OSError, match=r"refused"):
        socket.create_connection(address, timeout=60)


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "segment"])
def test_nothing_is_left_behind(tmp_path: Path, on_disk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data_dir = tmp_path / "data" if on_disk else None
    with tailrace.Broker() as warm:  # what the first one imports and opens for good does not count
        warm.produce("t", b"v")
    gc.collect()
    before = (set(threading.enumerate()), open_files())
    for _ in range(3):
        with tailrace.Broker(data_dir=data_dir) as broker:
            broker.produce("t", b"v")
            host, _, port = broker.bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=60).close()
    gc.collect()  # files of the segment engine close when nobody can read from them any more
    assert (set(threading.enumerate()) - before[0], open_files() - before[1]) == (set(), set())
    assert os.listdir(tmp_path) == (["data"] if on_disk else [])


def test_a_port_that_is_taken_is_named_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TailraceError, match=rf"port {port} is in use by pid {os.getpid()} \("):
            tailrace.Broker(kafka_port=port).start()


def test_the_data_stay_where_they_are_when_the_program_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with tailrace.Broker(data_dir="data") as broker:
        broker.produce("a", b"1")
        monkeypatch.chdir(tmp_path / "elsewhere")
        broker.produce("b", b"2")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with tailrace.Broker(data_dir=tmp_path / "data") as broker:
        assert (values(broker, "a"), values(broker, "b")) == ([b"1"], [b"2"])


def test_a_failed_start_leaves_nothing_behind_and_may_be_tried_again(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with tailrace.Broker(data_dir=tmp_path):
        second = tailrace.Broker(data_dir=tmp_path)
        with pytest.raises(StorageError, match=f"in use by pid {os.getpid()}"):
            second.start()
    with second:
        second.produce("t", b"v")
    assert set(threading.enumerate()) <= threads


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"open .*file/data: Not a directory"):
        tailrace.Broker(data_dir=tmp_path / "file" / "data").start()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"open .*file: it is a file, and not a directory"):
        tailrace.Broker(data_dir=tmp_path / "file").start()


def python(code: str, *, cwd: Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


FORGETFUL = """
    import gc
    import tailrace

    def serve():
        broker = tailrace.Broker(data_dir="d")
        broker.start()
        broker.produce("t", b"v")
        return broker

    broker = serve()
    print(1)
"""


@pytest.mark.parametrize("then", ["", "    del broker\n    gc.collect()\n"], ids=["kept", "collected"])
def test_a_program_that_forgets_to_close_still_ends_and_the_broker_cleanly(tmp_path: Path, then: str) -> None:
    assert python(FORGETFUL + then, cwd=tmp_path) == (0, "1\n", "")
    assert not list((tmp_path / "d").glob("*-wal")), "the metadata was not closed"
    with tailrace.Broker(data_dir=tmp_path / "d") as broker:
        assert values(broker, "t") == [b"v"]


FORKING = """
    import multiprocessing
    import tailrace
    from tailrace.model import TailraceError

    def child():
        for attempt in (lambda: broker.produce("t", b"child"), broker.close):
            try:
                print(attempt(), flush=True)
            except TailraceError as error:
                print(error, flush=True)

    with tailrace.Broker() as broker:
        broker.produce("t", b"parent")
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print([record.value for record in broker.read("t")], process.exitcode)
"""


def test_a_forked_child_hears_whose_broker_it_is_and_ends_at_once(tmp_path: Path) -> None:
    code, shown, errors = python(FORKING, cwd=tmp_path)
    assert (code, errors) == (0, "")
    refused, closed, parent = shown.splitlines()
    assert "of which this is a fork. Connect a client to its bootstrap_servers" in refused
    assert (closed, parent) == ("None", "[b'parent'] 0")


IDLE_CHILD = """
    import multiprocessing
    import tailrace

    with tailrace.Broker() as broker:
        process = multiprocessing.get_context("fork").Process(target=print, args=("child",))
        process.start()
        process.join()
        print(process.exitcode)
"""


def test_a_forked_child_that_knows_nothing_of_the_broker_ends_at_once(tmp_path: Path) -> None:
    assert python(IDLE_CHILD, cwd=tmp_path) == (0, "child\n0\n", "")


# ---- on disk


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with tailrace.Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", partitions=2, configs={"retention.ms": "-1"})
        broker.produce("t", b"1", partition=1)
    with tailrace.Broker(data_dir=tmp_path) as broker:
        assert values(broker, "t", partition=1) == [b"1"]
        assert broker.produce("t", b"2", partition=1) == (1, 1)
    with tailrace.Broker(data_dir=str(tmp_path)) as broker:
        assert values(broker, "t") == [b"1", b"2"]


# ---- in a loop


def test_the_asynchronous_broker_does_the_same(tmp_path: Path) -> None:
    async def use(data_dir: Path | None) -> list[bytes | None]:
        async with tailrace.AsyncBroker(data_dir=data_dir) as broker:
            await broker.create_topic("t", partitions=2)
            assert await broker.produce("t", b"1", partition=1, headers={"h": b"x"}) == (1, 0)
            assert (await broker.produce("t", b"2", key=b"k", timestamp=5)).offset >= 0
            host, _, port = broker.bootstrap_servers.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return sorted([record.value async for record in broker.read("t")], key=str)

    assert asyncio.run(use(None)) == [b"1", b"2"]
    assert asyncio.run(use(tmp_path)) == [b"1", b"2"]


def test_two_asynchronous_brokers_share_a_loop() -> None:
    async def use() -> None:
        async with tailrace.AsyncBroker() as first, tailrace.AsyncBroker() as second:
            await asyncio.gather(first.produce("t", b"1"), second.produce("t", b"2"))
            assert [record.value async for record in first.read("t")] == [b"1"]

    asyncio.run(use())


def test_the_blocking_broker_works_beside_a_running_loop() -> None:
    async def use() -> None:
        with tailrace.Broker() as broker:
            broker.produce("t", b"v")
            assert values(broker, "t") == [b"v"]

    asyncio.run(use())


def test_the_asynchronous_broker_says_that_it_is_not_started() -> None:
    async def use() -> None:
        broker = tailrace.AsyncBroker()
        with pytest.raises(TailraceError, match="not started"):
            await broker.produce("t", b"v")
        await broker.close()

    asyncio.run(use())


# ---- the name


def test_names_are_found_when_they_are_used() -> None:
    assert set(dir(tailrace)) == {"AsyncBroker", "Broker", "TailraceError", "__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'Brokr'"):
        _ = tailrace.Brokr


def test_what_cannot_be_decoded_is_told_with_its_place(broker: tailrace.Broker) -> None:
    broker.create_topic("t")
    broker.produce("t", b"before")
    partition = broker._inner._access()._access.readable(
        TopicPartition("t", 0)
    )  # as a Kafka client's batch comes
    assert broker._thread is not None

    async def poison() -> None:
        appended = partition.append(read_batch(undecodable(3, time_ms=0)))
        await partition.wait_acknowledged(appended.end_offset)

    broker._call(poison())
    broker.produce("t", b"after")
    reading = broker.read("t")
    assert next(reading).value == b"before"
    with pytest.raises(BrokerError, match=r"t-0 cannot be read at offset 1: .* Read on from offset 4"):
        next(reading)
    assert values(broker, "t", partition=0, offset=4) == [b"after"]


def test_the_kafka_port_has_one_name_and_an_older_one() -> None:
    port: Any = free_port()
    for named in ({"kafka_port": port}, {"port": port}):
        with tailrace.Broker(**named) as broker:
            assert broker.bootstrap_servers == f"127.0.0.1:{port}"
    with pytest.raises(ConfigError, match="two names of one thing"):
        tailrace.Broker(kafka_port=1, port=1)
    with pytest.raises(ConfigError, match="kafka_port = 70000 must be"):
        tailrace.Broker(kafka_port=70_000)
