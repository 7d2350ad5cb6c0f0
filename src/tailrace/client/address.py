"""Addresses of brokers: `host:port` as people write them, and what is said of one that cannot be reached."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from tailrace.client.error import CannotConnect
from tailrace.client.tls import ClientTls, handshake_failure
from tailrace.model import ConfigError
from tailrace.model.address import Address, is_unix, parse_address, unix_address

DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
"""Kafka's security protocols."""
_SHUTDOWN_S = 2.0


def asks_for_tls(bootstrap: str) -> bool:
    """Whether a list of addresses names a protocol of TLS, as in SASL_SSL://host:port."""
    return any(part.strip().upper().startswith(("SSL://", "SASL_SSL://")) for part in bootstrap.split(","))


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses in a comma-separated list; ConfigError if there is none or one makes no sense."""
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers is empty. Write it as host:port, for example 127.0.0.1:9092")
    return addresses


def _parse(text: str) -> Address:
    # A listener may be given as in a broker's own configuration: PLAINTEXT://host:port.
    scheme, found, rest = text.rpartition("://")
    if found and scheme.upper() not in PROTOCOLS:
        raise ConfigError(
            f"bootstrap.servers: {text} asks for {scheme}, and there are {', '.join(PROTOCOLS)}"
        )
    try:
        address = parse_address(rest, default_port=DEFAULT_PORT)
    except ValueError as error:
        raise ConfigError(
            f"bootstrap.servers: {text!r} is not host:port, for example 127.0.0.1:9092 or [::1]:9092"
        ) from error
    if address.path:
        raise ConfigError(f"bootstrap.servers: {text} is a Unix socket, and Kafka clients connect by TCP")
    return address


def address_of(host: str, port: int) -> Address:
    """Where a client that was given a host and a port connects; `unix:/path` as the host is a Unix socket."""
    if not is_unix(host):
        return Address(host, port)
    try:
        return unix_address(host)
    except ValueError as error:
        raise ConfigError(f"host = {host!r}: {error}") from error


async def connect(
    address: Address, make: Callable[[], asyncio.BaseProtocol], tls: ClientTls | None = None
) -> None:
    """Open a connection by TCP or through a Unix socket, for the protocol object that is made.

    OSError; CannotConnect says why a broker is not trusted, or does not speak TLS.
    """
    loop = asyncio.get_running_loop()
    if address.path:
        await loop.create_unix_connection(make, address.path)
    elif tls is None:
        await loop.create_connection(make, address.host, address.port)
    else:
        try:
            await loop.create_connection(
                make, address.host, address.port, ssl=tls.context(), ssl_shutdown_timeout=_SHUTDOWN_S
            )
        except ssl.SSLError as error:
            raise CannotConnect(handshake_failure(address, error)) from error
        except ConnectionError as error:
            if isinstance(error, ConnectionRefusedError):
                raise
            raise CannotConnect(
                f"{address} took the connection and ended it in the TLS handshake. Is this a port with TLS? "
                "If not, leave the CA out"
            ) from error


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
