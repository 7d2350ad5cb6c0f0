"""Accepting TLS clients: their first bytes are looked at, and their handshakes have bounds.

    accepted ──first bytes──► TLS ──handshake──► connection made, as on a plain listener
                   │
                   └──► something else: named in the log, HTTP is answered, closed

A client has HANDSHAKE_S for all of it, and counts as one that has not logged in (`logins.PendingLogins`), in
all and by its address. asyncio's own TLS server would tell nobody of clients that fail, and cannot change its
context. The first bytes are read with MSG_PEEK, so that the handshake finds them again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tailrace.model.address import Address
from tailrace.net.peer import plain_address
from tailrace.net.stranger import encrypted_only, is_tls, spoken
from tailrace.net.tls import ServerTls, alert_of

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 5.0
"""How long a client may take from its connection to the end of its handshake."""
_SHUTDOWN_S: Final = 5.0
_PEEKED_BYTES: Final = 16
_ACCEPTS_PER_TURN: Final = 64
_REST_S: Final = 1.0  # before the next connection is accepted, where files or memory were missing
_DRAINED_BYTES_MAX: Final = 64 * 1024
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TlsServer:
    """Accepts on bound sockets until it is closed; like an `asyncio.Server`, as far as it goes."""

    def __init__(
        self,
        sockets: list[socket.socket],
        connect: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls,
        *,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self.sockets = sockets
        self._connect = connect
        self._tls = tls
        self._handshake_s = handshake_s
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Accept no more, and end the handshakes under way."""
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
            each.close()
        for task in self._handshakes:
            task.cancel()

    # ---- inside

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                client, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._rest(listening, error)
                return
            self._begin(client, Address(plain_address(peer[0]), peer[1]))

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        logger.error("no connection accepted for %g s: %s", _REST_S, error.strerror)
        self._loop.remove_reader(listening)

        def go_on() -> None:
            if listening in self.sockets:
                self._loop.add_reader(listening, self._accept, listening)

        self._loop.call_later(_REST_S, go_on)

    def _begin(self, client: socket.socket, peer: Address) -> None:
        tls = self._tls
        if not tls.pending.enter(peer.host):
            client.close()
            tls.refused(str(peer), peer.host, "too many clients have not logged in", why="busy")
            return
        client.setblocking(False)
        task = self._loop.create_task(self._run(client, peer), name="tls-handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _run(self, client: socket.socket, peer: Address) -> None:
        try:
            async with asyncio.timeout(self._handshake_s):
                await self._admit(client, peer)
        except TimeoutError:
            self._refuse(peer, f"no handshake within {self._handshake_s:g} s", why="slow")
            client.close()
        except ssl.SSLError as error:
            self._refuse(peer, *_told(error, self._tls))
        except OSError as error:
            self._refuse(peer, f"it went away in its handshake ({error.strerror or error})", why="gone")
            client.close()
        except asyncio.CancelledError:
            client.close()
            raise
        except Exception as error:  # a bug of ours: it costs this client, and nothing else
            client.close()
            logger.error("connection failed: %s: %s", peer, error, exc_info=error)
        finally:
            self._tls.pending.leave(peer.host)

    async def _admit(self, client: socket.socket, peer: Address) -> None:
        first = await self._peek(client)
        if not is_tls(first):
            await self._turn_away(client, peer, first)
            return
        with client.dup() as kept:  # the transport closes its own before the client was told why
            try:
                await self._loop.connect_accepted_socket(
                    self._connect,
                    client,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=self._handshake_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
            except ssl.SSLError as error:
                await self._say_goodbye(kept, alert_of(error))
                raise
        self._tls.counts.succeeded += 1

    async def _say_goodbye(self, client: socket.socket, last_word: bytes) -> None:
        """Send the last bytes, and let the client read them: unread bytes of its own would take them away."""
        with suppress(OSError):
            await self._loop.sock_sendall(client, last_word)
            client.shutdown(socket.SHUT_WR)
            left = _DRAINED_BYTES_MAX
            while left > 0 and (data := await self._loop.sock_recv(client, left)):
                left -= len(data)

    async def _peek(self, client: socket.socket) -> bytes:
        """The first bytes, which stay to be read; b"" if the client left without any."""
        readable = self._loop.create_future()
        self._loop.add_reader(client, _set_once, readable)
        try:
            await readable
        finally:
            self._loop.remove_reader(client)
        return client.recv(_PEEKED_BYTES, socket.MSG_PEEK)

    async def _turn_away(self, client: socket.socket, peer: Address, first: bytes) -> None:
        """Close the connection of a client without TLS; one that speaks HTTP reads why."""
        tls = self._tls
        if first:  # else it looked whether the port is open, as health checks do
            self._refuse(peer, f"the client sends {spoken(first)} without TLS to a TLS listener", why="plain")
        with client:
            if spoken(first) == "HTTP":
                local = client.getsockname()
                address = Address(plain_address(local[0]), local[1])
                await self._say_goodbye(client, encrypted_only(address, protocol=tls.protocol))

    def _refuse(self, peer: Address, reason: str, why: str) -> None:
        self._tls.refused(str(peer), peer.host, reason, why=why)


def _set_once(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _told(error: ssl.SSLError, tls: ServerTls) -> tuple[str, str]:
    """Why a handshake failed, for the log, and the reason under which it is counted."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}", "certificate"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it presented no certificate, and the listener has client_ca", "certificate"
    if reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"):
        return f"it speaks no TLS from {tls.config.min_version} on", "version"
    if reason in ("NO_SHARED_CIPHER", "NO_SUITABLE_SIGNATURE_ALGORITHM", "NO_SHARED_GROUP"):
        return "it has no cipher suite that is allowed", "cipher"
    if "ALERT" in reason:
        return (
            f"the client ended the handshake ({reason.lower().replace('_', ' ')}). If it does not trust the "
            "certificate, give it the CA",
            "client",
        )
    return f"the handshake failed ({reason.lower().replace('_', ' ') or error})", "protocol"
