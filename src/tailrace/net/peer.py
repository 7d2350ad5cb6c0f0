"""The two ends of a connection, as people and clients write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.model.address import Address, is_unix, unix_address
from tailrace.net.unix_socket import peer_pid

if TYPE_CHECKING:
    from tailrace.net.transport import Transport


class ConnectionFacts(NamedTuple):
    """The two ends of a connection. On a Unix socket both hosts are its path: `unix:/run/tailrace.sock`."""

    peer_host: str
    peer_port: int
    local_host: str  # the address that the client reached, also where the listener is bound to all of them
    local_port: int
    listener: str = "kafka"
    peer_pid: int = 0  # of a Unix socket's client; 0: not known

    def __str__(self) -> str:
        """The client, for people."""
        if not self.peer_host:
            return "a client that is not known"
        peer = str(Address(self.peer_host, self.peer_port))
        return f"{peer} pid {self.peer_pid}" if self.peer_pid else peer

    @property
    def has_address(self) -> bool:
        """Whether clients can be told apart by their addresses: those of a Unix socket have none."""
        return not is_unix(self.peer_host)


def facts_of(transport: Transport, *, listener: str) -> ConnectionFacts:
    """What a transport knows of its ends; empty where it is gone already."""
    local = transport.get_extra_info("sockname") or ("", 0)
    if isinstance(local, str | bytes):
        path = unix_address(local if isinstance(local, str) else local.decode(errors="surrogateescape")).host
        return ConnectionFacts(path, 0, path, 0, listener, _pid(transport.get_extra_info("socket")))
    peer = transport.get_extra_info("peername") or ("", 0)
    return ConnectionFacts(plain_address(peer[0]), peer[1], plain_address(local[0]), local[1], listener)


def _pid(socket: Any) -> int:
    return 0 if socket is None else peer_pid(socket)


def plain_address(host: str) -> str:
    """An IPv4 address that came through an IPv6 socket, as IPv4; an IPv6 one without its scope."""
    host = host.partition("%")[0]
    return host.removeprefix("::ffff:") if host.startswith("::ffff:") and "." in host else host
