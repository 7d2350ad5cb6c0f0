"""Addresses of brokers: `host:port` as people write them, and what is said of one that cannot be reached."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model import ConfigError

DEFAULT_PORT = 9092
_PORT_MAX = 65_535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses in a comma-separated list; ConfigError if there is none or one makes no sense."""
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers is empty. Write it as host:port, for example 127.0.0.1:9092")
    return addresses


def _parse(text: str) -> Address:
    # A listener may be given as in a broker's own configuration: PLAINTEXT://host:port.
    scheme, found, rest = text.rpartition("://")
    if found and scheme.upper() != "PLAINTEXT":
        raise ConfigError(
            f"bootstrap.servers: {text} asks for {scheme}, and only plain connections are spoken"
        )
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") > 1:
        raise ConfigError(f"bootstrap.servers: write the IPv6 address {rest} in brackets, as in [::1]:9092")
    else:
        host, _, port = rest.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX)):
        raise ConfigError(f"bootstrap.servers: {text!r} is not host:port, for example 127.0.0.1:9092")
    return Address(host, int(port) if port else DEFAULT_PORT)


def unreached(address: Address, error: OSError) -> str:
    """To a person whose broker cannot be reached: why, and the way out."""
    return _unreached(address, _cause(error))


def unanswered_by(address: Address, timeout_s: float) -> str:
    """The same where nobody answered in time."""
    return _unreached(address, f"no answer within {timeout_s:.3g} s")


def _unreached(address: Address, cause: str) -> str:
    return f"cannot reach {address} ({cause}). Is the broker running? Try: tailrace up"


def _cause(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    # Several addresses of one host: asyncio puts all their errors into one text.
    if error.strerror is None and "Connect call failed" in str(error):
        return "connection refused"
    return (error.strerror or str(error) or type(error).__name__).lower()
