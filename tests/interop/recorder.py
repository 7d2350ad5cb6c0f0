"""A proxy that keeps the requests that pass through it: frames of real clients, to break later.

A client goes on to the address that the broker advertises, so the broker is told to advertise the proxy's.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

_SAMPLES_MAX = 6  # of one API and version: their shapes differ, but not without end
_FRAME_BYTES_MAX = 64 * 1024


class Recorder:
    """Listens from the beginning, and serves within `with` once it knows the broker."""

    def __init__(self) -> None:
        """The address is known before there is a broker."""
        self.broker = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._frames: dict[tuple[int, int], list[bytes]] = {}
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def bootstrap(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def frames(self) -> list[bytes]:
        """What was kept: requests without their size."""
        with self._lock:
            return [frame for frames in self._frames.values() for frame in frames]

    def kinds(self) -> set[tuple[int, int]]:
        """The APIs and versions that passed."""
        with self._lock:
            return set(self._frames)

    def __enter__(self) -> Recorder:
        """Serving."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Every connection is closed; what was kept stays."""
        self.close()

    def close(self) -> None:
        """Stop listening, and close what is open."""
        self._listener.close()
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        host, _, port = self.broker.rpartition(":")
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((host, int(port)), 10)
                broker.settimeout(None)
                with self._lock:
                    self._sockets += [client, broker]
                threading.Thread(target=self._pass, args=(client, broker, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(broker, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, keep: bool) -> None:
        pending = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
                if keep:
                    pending += data
                    self._keep_whole(pending)
            target.shutdown(socket.SHUT_WR)

    def _keep_whole(self, pending: bytearray) -> None:
        while len(pending) >= 4:
            (size,) = struct.unpack_from(">i", pending)
            if len(pending) < 4 + size:
                return
            frame = bytes(pending[4 : 4 + size])
            del pending[: 4 + size]
            if len(frame) > _FRAME_BYTES_MAX:
                continue
            key, version = struct.unpack_from(">hh", frame)
            with self._lock:
                kept = self._frames.setdefault((key, version), [])
                if len(kept) < _SAMPLES_MAX and frame not in kept:
                    kept.append(frame)
