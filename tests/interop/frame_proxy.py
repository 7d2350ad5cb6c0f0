"""A proxy between a client and a broker that holds some requests, and delivers them late.

It holds what comes behind them on the same connection too, as a network does. A client that has given up and
closed its connection is not noticed until everything that it sent has been delivered: so a request may arrive
after the client has repeated it on another connection.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Collection

_HEADER = struct.Struct(">ih")
_CHUNK = 1 << 16


class FrameProxy:
    """Listens on a free port of the loopback address; use it as a context manager."""

    def __init__(self, *, held: Collection[int], chance: float, hold_s: float, rng: random.Random) -> None:
        """Requests of the APIs in `held` are held with that chance, for up to `hold_s`."""
        self._held = held
        self._chance = chance
        self._hold_s = hold_s
        self._rng = rng
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.upstream = 0
        self.holds = 0
        self.late = 0
        """Requests that were delivered after their client had closed the connection."""

    def __enter__(self) -> FrameProxy:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for each in [self._listener, *self._sockets]:
            _shut(each)
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.upstream), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += [client, server]
            self._start(self._carry_requests, client, server)
            self._start(self._carry_answers, server, client)

    def _carry_requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            with client.makefile("rb") as stream:
                while len(head := stream.read(_HEADER.size)) == _HEADER.size:
                    size, key = _HEADER.unpack(head)
                    frame = head + stream.read(size - 2)
                    if key in self._held and self._rng.random() < self._chance:
                        self.holds += 1
                        self._closed.wait(self._rng.uniform(0, self._hold_s))
                        self.late += _has_ended(client)
                    server.sendall(frame)
        except OSError:
            pass
        finally:
            _shut(server)
            _shut(client)

    def _carry_answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(_CHUNK):
                try:
                    client.sendall(data)
                except OSError:
                    continue  # the client has gone: what it sent is delivered all the same
        except OSError:
            pass
        _shut(client)


def _has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
