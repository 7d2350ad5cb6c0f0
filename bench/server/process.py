"""A server as a process of ours: a free port, a directory of its own, a log file, and an end by its process
id.

Every server gets its own session, so that Ctrl-C reaches us alone and we end them in order. Ready is when it
answers in its own protocol; how long that took is measured from the start of the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.bench.wire.accounting import Usage, tree_usage
from tailrace.testing.port import free_port

HOST = "127.0.0.1"
_READY_S = 60.0
_STOP_S = 20.0
_LOOK_EVERY_S = 0.005
_LOG_TAIL_BYTES = 2000


class NotHere(Exception):
    """The server cannot be run on this machine; the message says why, and what would help."""


class Server(ABC):
    """One server program with one configuration, started in a directory and stopped as often as one likes."""

    name: str
    version: str = "unknown"

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None

    @abstractmethod
    def find(self) -> None:
        """Look for the program or fetch it, and learn its version; NotHere if that cannot be."""

    @abstractmethod
    def configure(self, directory: Path) -> Sequence[str]:
        """Write what it needs into the directory; the command that runs it on `self.port`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves: one attempt, in its own protocol."""

    def environment(self, directory: Path) -> Mapping[str, str]:
        """What it is told beside its command."""
        del directory
        return {}

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    def usage(self) -> Usage | None:
        """Of its whole process tree."""
        return tree_usage(self.pid)

    def start(self, directory: Path) -> float:
        """Start it and wait until it serves; the seconds that took."""
        assert self._process is None, "it runs already"
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        command = self.configure(directory)
        self._log = directory / "server.log"
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, **self.environment(directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_ready(began)
        except BaseException:
            self.stop()
            raise
        return time.monotonic() - began

    def stop(self) -> None:
        """End its session: politely, then not. Nothing happens if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _signal_group(process.pid, signal.SIGKILL)  # what a wrapper script left behind
            process.wait(_STOP_S)

    def _wait_ready(self, began: float) -> None:
        while not self._answers_now():
            assert self._process is not None
            if self._process.poll() is not None:
                raise NotHere(
                    f"{self.name} ended with status {self._process.returncode}: {self._last_words()}"
                )
            if time.monotonic() - began > _READY_S:
                raise NotHere(f"{self.name} did not serve within {_READY_S:.0f} s: {self._last_words()}")
            time.sleep(_LOOK_EVERY_S)  # another program's readiness has no event to wait for

    def _answers_now(self) -> bool:
        try:
            return self.answers()
        except OSError:
            return False

    def _last_words(self) -> str:
        assert self._log is not None
        text = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "it printed nothing"


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def exchange(port: int, question: bytes, *, size: int = 4096) -> bytes:
    """Send this, return the first piece of the answer; OSError if there is none within a second."""
    with socket.create_connection((HOST, port), 1.0) as sock:
        sock.settimeout(1.0)
        if question:
            sock.sendall(question)
        return sock.recv(size)


def find_program(name: str, *, package: str) -> str:
    """The path of a program; Debian's sbin is looked into as well. NotHere names the package that has it."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotHere(f"{name} is not installed. On Debian: apt-get install {package}")
    return found


def output_of(command: Sequence[str], *, timeout_s: float = 30.0) -> str:
    """What a short command prints; NotHere with its last line if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NotHere(
            f"{Path(command[0]).name} failed: {words[-1] if words else f'status {done.returncode}'}"
        )
    return done.stdout + done.stderr
