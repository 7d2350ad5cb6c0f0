"""Config, addresses, error codes, the reply cache and who owns a port, called plainly."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import cast

import pytest

from tailrace.broker import Node
from tailrace.broker.gate import Access
from tailrace.kafka import Call, KafkaConfig
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.config import split_address
from tailrace.kafka.errors import error_of
from tailrace.model import BrokerError, BrokerId, ConfigError, ErrorCode, LogBusy, ProtocolError, StorageError
from tailrace.net import ConnectionFacts, find_occupant
from tailrace.net.peer import plain_address

FACTS = ConnectionFacts("203.0.113.7", 50_000, "192.0.2.1", 9092)


def call(advertised: str = "auto") -> Call:
    return Call(cast(Access, None), version=1, client_id="x", connection=FACTS, advertised=advertised)


@pytest.mark.parametrize(
    "wrong",
    [
        {"connections_max": 0},
        {"frame_bytes_max": -1},
        {"idle_timeout_s": 0.0},
        {"large_requests_bytes_max": 0},
        {"close_grace_s": -1.0},
        {"advertised": "nowhere"},
        {"advertised": "host:0"},
        {"advertised": ":9092"},
        {"advertised": "host:66000"},
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        KafkaConfig(**wrong)  # type: ignore[arg-type]


def test_bounds_that_may_be_zero() -> None:
    KafkaConfig(connections_per_address_max=0, close_grace_s=0)


def test_addresses_are_split() -> None:
    assert split_address("broker.example.org:19092") == ("broker.example.org", 19092)
    assert split_address("[2001:db8::1]:9092") == ("2001:db8::1", 9092)


def test_a_node_without_an_address_is_where_the_client_reached_us() -> None:
    assert call().advertised(Node(node_id=BrokerId(1))) == ("192.0.2.1", 9092)


def test_an_advertised_address_takes_its_place() -> None:
    assert call("public:1234").advertised(Node(node_id=BrokerId(1))) == ("public", 1234)


def test_another_node_has_its_own_address() -> None:
    node = Node(node_id=BrokerId(2), host="node2", port=9093)
    assert call("public:1234").advertised(node) == ("node2", 9093)


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1", "::1"),
        ("::ffff:1", "::ffff:1"),
    ],
)
def test_addresses_are_told_plainly(address: str, plain: str) -> None:
    assert plain_address(address) == plain


def test_errors_have_their_codes() -> None:
    assert error_of(BrokerError("no", code=ErrorCode.INVALID_CONFIG)) == (ErrorCode.INVALID_CONFIG, "no")
    assert error_of(StorageError("sync", "/x", "bad"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(LogBusy("wait"))[0] == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("bug", [ValueError("bug"), ProtocolError("rude")])
def test_a_bug_has_no_code(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        error_of(bug)


def test_the_cache_forgets_with_the_generation() -> None:
    cache = ReplyCache()
    cache.put(1, "a", b"reply", request_bytes=1)
    assert cache.get(1, "a") == b"reply" and cache.get(1, "b") is None
    assert cache.get(2, "a") is None
    cache.put(2, "b", b"new", request_bytes=1)
    assert cache.get(2, "a") is None and cache.get(2, "b") == b"new" and cache.get(1, "a") is None


def test_the_cache_is_bounded() -> None:
    cache = ReplyCache()
    for number in range(100):
        cache.put(1, number, bytes(1 << 20), request_bytes=100)
    kept = [number for number in range(100) if cache.get(1, number) is not None]
    assert 0 < len(kept) <= 8 and 99 in kept
    cache.put(1, "huge", bytes(5 << 20), request_bytes=1)
    cache.put(1, "long question", b"x", request_bytes=1 << 20)
    assert cache.get(1, "huge") is None and cache.get(1, "long question") is None


def test_the_owner_of_a_port_is_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = find_occupant(taken.getsockname()[1])
        assert found is not None and found[0] == os.getpid() and found[1]


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    assert find_occupant(9092, proc=tmp_path) is None
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:2384 00000000:0000 0A 0:0 00:0 0 0 0 4242 1"
    (tmp_path / "net" / "tcp").write_text(f"head\n{row}\nshort line\n")
    assert find_occupant(9092, proc=tmp_path) is None
    process = tmp_path / "77" / "fd"
    process.mkdir(parents=True)
    (process / "3").symlink_to("socket:[4242]")
    (tmp_path / "77" / "comm").write_text("java\n")
    assert find_occupant(9092, proc=tmp_path) == (77, "java")
    assert find_occupant(9093, proc=tmp_path) is None
