"""Where a broker listens: a host and a port, or the path of a Unix socket.

    127.0.0.1:9092    [::1]:9092    unix:/run/tailrace.sock

A host that begins with `unix:` is the path of a Unix socket, and its port is 0. Sessions, logs and
`BrokerClient(host="unix:/run/tailrace.sock")` write it the same way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PORT_MAX: Final = 65_535
_UNIX: Final = "unix:"


class Address(NamedTuple):
    """A place to listen at, or to connect to."""

    host: str
    port: int

    @property
    def path(self) -> str:
        """The path of a Unix socket; "" for TCP."""
        return self.host.removeprefix(_UNIX) if is_unix(self.host) else ""

    def __str__(self) -> str:
        if is_unix(self.host):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_unix(host: str) -> bool:
    """Whether a host is the path of a Unix socket."""
    return host.startswith(_UNIX)


def unix_address(path: str) -> Address:
    """The Unix socket at a path, which may have `unix:` in front; ValueError if it cannot be a path."""
    bare = path.removeprefix(_UNIX)
    if not bare or "\0" in bare:
        raise ValueError("a Unix socket has a path without NUL, such as unix:/run/tailrace.sock")
    return Address(_UNIX + bare, 0)


def parse_address(text: str, *, default_port: int = 0) -> Address:
    """The address that a text names; ValueError says what is wrong with it.

    Without `default_port` a TCP address needs its port. An IPv6 address stands in brackets.
    """
    if is_unix(text):
        return unix_address(text)
    host, port = _split(text)
    if port is None and default_port:
        port = str(default_port)
    if not host or not port:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} has no port from 1 to {PORT_MAX}")
    return Address(host, int(port))


def _split(text: str) -> tuple[str, str | None]:
    """Host and port; None where no colon announces a port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        return host, rest[1:] if rest else None
    host, colon, port = text.rpartition(":")
    if ":" in host:
        raise ValueError(f"{text!r} is not HOST:PORT: an IPv6 address stands in brackets, as in [::1]:9092")
    return (host, port) if colon else (port, None)
