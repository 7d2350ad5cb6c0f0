"""The connections of one client: opened when first needed, shared, and opened again when they were lost.

A node has a connection per channel, because a broker takes the requests of one connection one after the
other: a fetch that waits for records, or a join that waits for the other members, would hold up everything
behind it. Ordinary requests share the channel REQUESTS; a fetcher and a group member have their own.

After a failed attempt the next one waits, longer each time (RECONNECT_MAX_S at most, with some chance in it,
so that the clients of a broker that comes back do not arrive in step). A connection that opened counts as a
fresh start.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.client.connection import Connection, open_connection
from tailrace.client.credentials import AnyCredentials
from tailrace.client.error import CannotConnect, ClientClosed
from tailrace.client.tls import ClientTls
from tailrace.model.address import Address

RECONNECT_MIN_S = 0.05
RECONNECT_MAX_S = 1.0


class Channel:
    """Requests that share their connections with nobody else's."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<Channel {self.name}>"


REQUESTS = Channel("requests")
"""What is answered at once."""


@dataclass(slots=True)
class _Line:
    """One address on one channel: its connection, if any, and how its last attempts went."""

    connection: Connection | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    not_before: float = 0.0


class Pool:
    """Connections by address and channel."""

    def __init__(
        self,
        *,
        client_id: str,
        request_timeout_s: float,
        connect_timeout_s: float,
        credentials: AnyCredentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._client_id = client_id
        self._credentials = credentials
        self._tls = tls
        self._request_timeout_s = request_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._lines: dict[tuple[Address, Channel], _Line] = {}
        self._closed = False

    async def get(self, address: Address, channel: Channel = REQUESTS) -> Connection:
        """The connection to an address, opened if need be. Whoever comes meanwhile gets the same one."""
        line = self._lines.setdefault((address, channel), _Line())
        if (connection := line.connection) is not None and not connection.closed:
            return connection
        async with line.lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            if (connection := line.connection) is not None and not connection.closed:
                return connection
            return await self._open(line, address)

    async def first(self, addresses: Sequence[Address]) -> Connection:
        """A connection to whichever address answers first, in their order. Each is tried once, at once."""
        errors: list[CannotConnect] = []
        for address in addresses:
            line = self._lines.setdefault((address, REQUESTS), _Line())
            line.not_before = 0.0
            try:
                return await self.get(address)
            except CannotConnect as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        listed = ", ".join(map(str, addresses))
        raise CannotConnect(f"none of {listed} can be reached; the last said: {errors[-1]}") from errors[-1]

    async def close(self) -> None:
        """Close every connection, those that are being opened included."""
        self._closed = True
        for _address, channel in list(self._lines):
            await self.close_channel(channel)

    async def close_channel(self, channel: Channel) -> None:
        """Close the connections of a channel that is used no more."""
        for address, each in list(self._lines):
            line = self._lines.get((address, each))
            if each is channel and line is not None:
                async with line.lock:
                    if line.connection is not None:
                        await line.connection.close()
                self._lines.pop((address, each), None)

    async def _open(self, line: _Line, address: Address) -> Connection:
        loop = asyncio.get_running_loop()
        if (wait_s := line.not_before - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        if line.connection is not None:
            await line.connection.close()
            line.connection = None
        try:
            line.connection = await open_connection(
                address,
                client_id=self._client_id,
                request_timeout_s=self._request_timeout_s,
                connect_timeout_s=self._connect_timeout_s,
                credentials=self._credentials,
                tls=self._tls,
            )
        except CannotConnect:
            line.not_before = loop.time() + back_off_s(line.failures)
            line.failures += 1
            raise
        line.failures = 0
        return line.connection


def back_off_s(attempts: int, *, first_s: float = RECONNECT_MIN_S, most_s: float = RECONNECT_MAX_S) -> float:
    """How long to wait after so many attempts: doubling, up to a bound, give or take a fifth."""
    exact = min(most_s, first_s * (1 << min(attempts, 16)))
    return exact * random.uniform(0.8, 1.2)
