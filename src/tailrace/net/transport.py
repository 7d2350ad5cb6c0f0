"""The port between a listener and its sockets: what a connection needs of one, and where a listener listens.

    Address --listen--> Listening        one place: a TCP port or a Unix socket
                            │ a client connects
                            ▼
                        Transport        write, stop reading, how much is unsent, close, abort, who is there

`Transport` has the methods of asyncio's transports. Those of asyncio and uvloop, for TCP, Unix sockets and
TLS, are transports as they are: a request on such a socket costs no call for the port. A WebSocket has an
adapter (`native/websocket_transport.py`).

The other direction is asyncio's protocol: a connection is told `connection_made`, what was received,
`pause_writing` and `resume_writing` where the client does not read, and `connection_lost`, once and last.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from tailrace.model.address import Address, unix_address
from tailrace.net.unix_socket import Bound, bind_unix

if TYPE_CHECKING:
    from tailrace.net.handshake import TlsServer
    from tailrace.net.tls import ServerTls

_BACKLOG = 1024
_INT = struct.Struct("i")


class Transport(Protocol):
    """One client's socket, as its connection sees it; tests/conformance/test_transport.py holds the rules."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Send this after everything that was written before. Never waits: what the client does not take is
        buffered. After `close` or `abort` it does nothing.
        """

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        """With more than `high` bytes buffered the connection is told `pause_writing`, and `resume_writing`
        once no more than `low` are left.
        """

    def get_write_buffer_size(self) -> int:
        """The bytes that were written and that the client, or the kernel, has not taken."""

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`, so that the client is held back as well."""

    def resume_reading(self) -> None:
        """Receive again."""

    def close(self) -> None:
        """Receive nothing more; end the connection when everything that was written has left."""

    def abort(self) -> None:
        """End the connection now; what has not left is dropped."""

    def get_extra_info(self, name: str, /) -> Any:
        """`peername` and `sockname`, as `tailrace.net.peer` reads them; None for what is not known."""


def half_close(transport: Transport) -> bool:
    """Tell the client that nothing more will be written, and go on reading; False if that cannot be done.

    Sockets can. TLS cannot, and a WebSocket says goodbye with its close.
    """
    whole = cast(asyncio.Transport, transport)
    if not whole.can_write_eof():
        return False
    whole.write_eof()
    return True


def is_encrypted(transport: Transport) -> bool:
    """Whether this is a transport of TLS."""
    return transport.get_extra_info("ssl_object") is not None


def has_unread(transport: Transport) -> bool:
    """Whether bytes of the client have arrived that were not received: closing the socket would reset it."""
    found = transport.get_extra_info("socket")
    if found is None:
        return False
    try:
        waiting = fcntl.ioctl(found.fileno(), termios.FIONREAD, bytes(_INT.size))
    except OSError:
        return False  # it is closed already
    count: int = _INT.unpack(waiting)[0]
    return count > 0


class Listening:
    """A place where clients are accepted, from `listen` to `close`."""

    __slots__ = ("_bound", "_server", "address")

    def __init__(self, server: asyncio.Server | TlsServer, address: Address, bound: Bound | None) -> None:
        self._server = server
        self._bound = bound
        self.address = address  # with the port that was bound

    def __repr__(self) -> str:
        return f"<Listening {self.address}>"

    @property
    def sockets(self) -> tuple[Any, ...]:
        """The listening sockets: a host name may have several addresses."""
        return tuple(self._server.sockets)

    def close(self) -> None:
        """Accept no more, and remove the file of a Unix socket."""
        if self._bound is not None:
            self._bound.remove()  # first: a client that comes now must not find a socket that does not answer
        self._server.close()


async def listen(
    address: Address, connect: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
) -> Listening:
    """Accept clients at an address, each with a protocol object that `connect` makes.

    OSError if a port cannot be bound, ConfigError if a Unix socket cannot. With `tls` a connection is made
    when its handshake is done; a Unix socket, which does not leave the machine, has none.
    """
    loop = asyncio.get_running_loop()
    if address.path:
        bound = bind_unix(address.path)
        try:
            on_path = await loop.create_unix_server(connect, sock=bound.socket, backlog=_BACKLOG)
        except BaseException:
            bound.remove()
            bound.socket.close()
            raise
        return Listening(on_path, unix_address(address.path), bound)
    server = await _serve(address, connect, tls)
    port: int = server.sockets[0].getsockname()[1]
    return Listening(server, Address(address.host, port), None)


async def _serve(
    address: Address, connect: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None
) -> asyncio.Server | TlsServer:
    loop = asyncio.get_running_loop()
    if tls is None:
        return await loop.create_server(connect, address.host or None, address.port, backlog=_BACKLOG)
    from tailrace.net.handshake import TlsServer

    return TlsServer(await _bind(address), connect, tls)


async def _bind(address: Address) -> list[socket.socket]:
    """Listening sockets at every address that the host has, as asyncio binds them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, place in dict.fromkeys(found):
            if family == socket.AF_INET6 and not socket.has_dualstack_ipv6() and len(found) > 1:
                continue  # a machine without IPv6 whose hosts file has ::1 for localhost
            each = socket.create_server(place, family=family, backlog=_BACKLOG)
            each.setblocking(False)
            bound.append(each)
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound
