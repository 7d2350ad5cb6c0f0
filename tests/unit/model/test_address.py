"""Addresses as text: TCP with and without brackets, Unix sockets, and everything that is no address."""

from __future__ import annotations

import pytest

from tailrace.model.address import Address, is_unix, parse_address, unix_address


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092, ""),
        ("broker.lan:1", "broker.lan", 1, ""),
        ("[::1]:65535", "::1", 65535, ""),
        ("unix:/run/tailrace.sock", "unix:/run/tailrace.sock", 0, "/run/tailrace.sock"),
        ("unix:native.sock", "unix:native.sock", 0, "native.sock"),
        ("unix:/a b:9092/ü", "unix:/a b:9092/ü", 0, "/a b:9092/ü"),
    ],
)
def test_an_address_is_shown_as_it_is_written(text: str, host: str, port: int, path: str) -> None:
    address = parse_address(text)
    assert (address.host, address.port, address.path) == (host, port, path)
    assert str(address) == text
    assert is_unix(address.host) == bool(path)


@pytest.mark.parametrize(("text", "host"), [("broker", "broker"), ("[::1]", "::1"), ("unix", "unix")])
def test_a_missing_port_is_the_usual_one_where_there_is_one(text: str, host: str) -> None:
    assert parse_address(text, default_port=9999) == Address(host, 9999)
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":9092",
        "host:",
        "host:0",
        "host:65536",
        "host:99999999999",
        "host:-1",
        "host:x",
        "host:٣",
        "host: 1",
        "::1",
        "::1:9092",
        "[::1",
        "[::1]9092",
        "[]:1",
        "[::1]:",
        "unix:",
        "unix:/a\0b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|port from 1|Unix socket"):
        parse_address(text, default_port=9999)


def test_the_path_of_a_unix_socket_may_come_with_its_scheme() -> None:
    assert unix_address("/run/x") == unix_address("unix:/run/x") == Address("unix:/run/x", 0)
