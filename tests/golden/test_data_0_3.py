"""Transactions and users of earlier versions, opened with the present code: what is seen, open and is let in.

Two variants as in `test_data_0_1`, whose fixtures and general tests are used here with this directory. What
readers see is compared with the writer's own ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.golden.ledger import ABORTED, COMMITTED, seen_committed, seen_uncommitted
from tests.golden.opening import (
    DATA_0_3,
    MECHANISMS,
    listeners_with_login,
    server_on,
    unpack,
    verify,
)
from tests.golden.test_data_0_1 import (
    Opened,
    Running,
    test_dead_letters_are_where_they_were,
    test_log_verify_finds_nothing_wrong_before_and_after_serving,
    test_subscriptions_deliver_what_was_not_settled_and_nothing_else,
    test_the_same_topics_have_the_same_ids_and_settings,
)
from tests.golden.test_data_0_1 import expected as expected
from tests.golden.test_data_0_1 import variant as variant
from tests.golden.transacting import end, formats_of, observe_all, salt_of, with_client
from tests.interop.raw import committed, connect
from tests.interop.test_transactions import Confluent

from tailrace.client.credentials import Credentials
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import INIT_PRODUCER_ID
from tailrace.model import BrokerError, ErrorCode
from tailrace.security import AuthenticationFailed, Secret
from tailrace.spark.transacting import Opened as Identity
from tailrace.testing.port import free_port
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest

__all__ = [  # tests of 0.1 that hold here as they are
    "test_dead_letters_are_where_they_were",
    "test_log_verify_finds_nothing_wrong_before_and_after_serving",
    "test_subscriptions_deliver_what_was_not_settled_and_nothing_else",
    "test_the_same_topics_have_the_same_ids_and_settings",
]
_DEADLINE_S = 60
_OTHER_FATE = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)


@pytest.fixture(scope="module")
def directory() -> Path:
    return DATA_0_3


@pytest.fixture(scope="module")
def opened(variant: str, expected: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The variant, served once and not written to; `read` in what was observed is what readers see."""
    data_dir = unpack(DATA_0_3 / f"{variant}.tar.xz", tmp_path_factory.mktemp("opened"))
    formats = formats_of(data_dir)
    before = verify(data_dir)
    login_port = free_port()
    with server_on(data_dir, listeners=listeners_with_login(login_port)) as server:
        observed = observe_all(server.bootstrap, data_dir)
        observed["formats"] = formats
        observed["read"] = {
            isolation: read(server.bootstrap, expected["records"], isolation=isolation)
            for isolation in ("read_committed", "read_uncommitted")
        }
        with connect(f"127.0.0.1:{login_port}") as connection:
            observed["stranger"] = [expected["stranger"][0], salt_of(connection, expected["stranger"][0])]
        observed["logins"] = [
            [name, password, mechanism, is_let_in(login_port, name, password, mechanism)]
            for name, password, allowed in expected["logins"]
            for mechanism in (MECHANISMS if allowed else MECHANISMS[:1])  # what is refused takes longer
        ]
        name, password, _ = expected["logins"][0]
        observed["librdkafka"] = [
            each for each in MECHANISMS if has_brokers(login_port, name, password, each)
        ]
    return Opened(
        expected=expected, observed=observed, verified_before=before, verified_after=verify(data_dir)
    )


@pytest.fixture(scope="module")
def running(variant: str, expected: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The variant, served and written to; each test has a part of its own."""
    data_dir = unpack(DATA_0_3 / f"{variant}.tar.xz", tmp_path_factory.mktemp("running"))
    with server_on(data_dir) as server:
        yield Running(expected=expected, server=server)


def read(bootstrap: str, places: Any, *, isolation: str) -> dict[str, list[tuple[str | None, str]]]:
    """Keys and values that a reader of librdkafka sees, of all partitions ("topic-partition")."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "golden-reader",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    found: dict[str, list[tuple[str | None, str]]] = {place: [] for place in places}
    left = set(places)

    try:
        named = [place.rpartition("-") for place in places]
        consumer.assign([TopicPartition(topic, int(partition), 0) for topic, _, partition in named])
        while left:
            message = consumer.poll(_DEADLINE_S)
            assert message is not None, f"no end of {left}"
            place = f"{message.topic()}-{message.partition()}"
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                assert not isinstance(key, str) and isinstance(value, bytes)
                found[place].append((None if key is None else key.decode(), value.decode()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(place)
        return found
    finally:
        consumer.close()


def is_let_in(port: int, name: str, password: str, mechanism: str) -> bool:
    """Whether a password opens the listener."""

    async def log_in() -> None:
        login = Credentials(name, Secret(password), mechanism)
        async with KafkaClient(f"127.0.0.1:{port}", credentials=login):
            pass

    try:
        asyncio.run(log_in())
    except AuthenticationFailed:
        return False
    return True


def has_brokers(port: int, name: str, password: str, mechanism: str) -> bool:
    """Whether librdkafka is told of brokers after its login."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    return bool(AdminClient(settings).list_topics(timeout=_DEADLINE_S).brokers)


# ---- what is served


def test_the_directory_has_every_format_that_transactions_added(opened: Opened) -> None:
    assert all(opened.observed["formats"].values()), opened.observed["formats"]


@pytest.mark.parametrize("part", ["topics", "groups", "subscriptions", "transactions", "users", "stranger"])
def test_what_the_writing_server_served_is_served_again(opened: Opened, part: str) -> None:
    assert opened.observed[part] == opened.expected[part]


def test_careful_readers_see_what_was_committed_before_the_first_open_transaction(opened: Opened) -> None:
    _check_committed(opened.observed["read"]["read_committed"], opened.expected, opened.expected["fates"])


def _check_committed(found: dict[str, list[tuple[str | None, str]]], expected: Any, fates: Any) -> None:
    for place, rows in expected["records"].items():
        topic = place.rpartition("-")[0]
        if topic in expected["latest"]:  # compacted
            latest = {key: value for key, value in found[place] if key and key.startswith("k")}
            assert latest == expected["latest"][topic]
            assert all("bad" not in value for _, value in found[place])
        else:
            assert [value for _, value in found[place]] == seen_committed(rows, fates), place


def test_other_readers_see_every_record(opened: Opened) -> None:
    for place, rows in opened.expected["records"].items():
        if place.rpartition("-")[0] not in opened.expected["latest"]:
            found = [value for _, value in opened.observed["read"]["read_uncommitted"][place]]
            assert found == seen_uncommitted(rows), place


def test_users_log_in_with_their_newest_password_and_others_do_not(opened: Opened) -> None:
    assert opened.observed["logins"] == [
        [name, password, mechanism, allowed]
        for name, password, allowed in opened.expected["logins"]
        for mechanism in (MECHANISMS if allowed else MECHANISMS[:1])
    ]
    assert {allowed for *_, allowed in opened.observed["logins"]} == {True, False}


def test_the_login_of_another_author_agrees_with_the_verifiers(opened: Opened) -> None:
    assert opened.observed["librdkafka"] == list(MECHANISMS)


# ---- what goes on


def test_an_end_that_is_repeated_is_answered_as_the_first_time(running: Running) -> None:
    assert {each["commit"] for each in running.expected["ended"]} == {True, False}
    for each in running.expected["ended"]:
        identity, commit = Identity(*each["opened"]), each["commit"]
        end(running.server.bootstrap, identity, commit=commit)
        with pytest.raises(BrokerError) as refused:
            end(running.server.bootstrap, identity, commit=not commit)
        assert refused.value.code in _OTHER_FATE, refused.value


def test_open_transactions_are_ended_by_their_producers_and_by_new_ones(running: Running) -> None:
    bootstrap, expected = running.server.bootstrap, running.expected
    fates = dict(expected["fates"])
    assert {each["prepared"] for each in expected["open"]} == {True, False}
    for each in expected["open"]:
        identity = Identity(*each["opened"])
        if each["prepared"]:
            assert _code_of_init(bootstrap, identity.transactional_id) == ErrorCode.CONCURRENT_TRANSACTIONS
        if identity.transactional_id == "abandoned":
            Confluent(bootstrap, identity.transactional_id).close()
            fates[each["transaction"]] = ABORTED
        else:
            end(bootstrap, identity, commit=True)
            fates[each["transaction"]] = COMMITTED
    _check_ended(bootstrap, expected, fates)
    assert running.server.stop() == 0
    code, printed = verify(running.server.data_dir)
    assert code == 0, printed
    running.server.start()
    _check_ended(bootstrap, expected, fates)


def _check_ended(bootstrap: str, expected: Any, fates: dict[str, str]) -> None:
    """Records and positions of what was open are seen by now, if they were committed."""
    _check_committed(read(bootstrap, expected["records"], isolation="read_committed"), expected, fates)
    for each in expected["open"]:
        if each["group"] is not None:
            before = expected["groups"][each["group"]].get("orders-0", {"offset": -1})["offset"]
            after = each["offset"] if fates[each["transaction"]] == COMMITTED else before
            assert committed(bootstrap, each["group"], "orders", 0)[0] == after, each


def _code_of_init(bootstrap: str, transactional_id: str) -> int:
    """What InitProducerId of a producer that names no identity is answered."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    async def ask(client: KafkaClient) -> int:
        reply = await client.request(INIT_PRODUCER_ID, request, transactional_id=transactional_id)
        return int(reply.error_code)

    return with_client(bootstrap, ask)
