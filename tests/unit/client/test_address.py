"""Addresses as people write them in bootstrap.servers, good and bad."""

from __future__ import annotations

import pytest

from tailrace.client.address import address_of, parse_bootstrap
from tailrace.model import ConfigError
from tailrace.model.address import Address


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://host:1", [("host", 1)]),
    ],
)
def test_an_address_is_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        ":9092",
        "host:port",
        "host:0",
        "host:65536",
        "host:-1",
        "::1",
        "TLS://host:1",
        "h:٣",
        "unix:/x",
    ],
)
def test_what_is_no_address_is_refused_with_the_setting_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_bootstrap(text)


def test_a_host_of_a_native_client_may_be_a_unix_socket() -> None:
    assert address_of("localhost", 9999) == Address("localhost", 9999)
    assert str(address_of("unix:/run/x", 9999)) == "unix:/run/x"
    with pytest.raises(ConfigError, match="unix:/run/tailrace"):
        address_of("unix:", 9999)


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("h", 1)) == "h:1"
