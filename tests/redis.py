"""A real Redis for tests: redis-server on a free loopback port, with nothing kept on the disk.

    redis            the address (host, port) of an empty server that the whole process shares
    own_redis        a server of the test's own, to be stopped and killed

Where redis-server is not there, the tests skip with the reason. A server is a child of ours and is ended by
its process id.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.testing.port import free_port

_READY_S = 60
_STOP_S = 30
_ANSWER_BYTES = 4096


def why_not() -> str:
    """Why there can be no Redis here; "" if there can."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed. On Debian: scripts/install-packages"
    return ""


class RedisServer:
    """A redis-server without persistence. What it holds is gone when it stops."""

    def __init__(self, directory: Path, *, settings: Sequence[str] = ()) -> None:
        """`settings` are words of its command line, such as --maxmemory 8mb."""
        self.directory = directory
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=100)
        self._reader: threading.Thread | None = None
        self._answered = threading.Event()
        self._ready = False
        self.start()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def output(self) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._said)

    def command(self, *words: str) -> str:
        """The answer to one command in Redis's inline form, for setting a scene and looking at it."""
        with socket.create_connection(self.address, timeout=_READY_S) as client:
            client.sendall(" ".join(words).encode() + b"\r\n")
            return client.recv(_ANSWER_BYTES).decode().strip()

    def start(self) -> None:
        """Serve on the same port."""
        self._said.clear()
        self._answered.clear()
        self._ready = False
        given = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.directory)}
        given |= {"save": "", "appendonly": "no", "daemonize": "no"}
        self._process = subprocess.Popen(
            ["redis-server", *_words(given), *self._settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        assert self._answered.wait(_READY_S) and self._ready, f"redis-server did not start:\n{self.output}"

    def stop(self) -> None:
        """Shut down; harmless where it does not run."""
        if self._process is not None:
            self._process.terminate()
            self._wait_ended()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._wait_ended()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A server that is there and answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    # ---- inside

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.append(line.rstrip())
            if "eady to accept connections" in line:
                self._ready = True
                self._answered.set()
        self._answered.set()

    def _wait_ended(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert self._reader is not None and process.stdout is not None
        self._reader.join(_STOP_S)
        process.stdout.close()


def _words(options: Mapping[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    yield from _server()


@pytest.fixture
def redis(shared_redis: RedisServer) -> tuple[str, int]:
    shared_redis.command("FLUSHALL")
    return shared_redis.address


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    yield from _server()


def _server() -> Iterator[RedisServer]:
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="tailrace-redis-", dir="/tmp") as name:
        running = RedisServer(Path(name))
        try:
            yield running
        finally:
            running.stop()
