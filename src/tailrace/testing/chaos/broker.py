"""`tailrace up` as a process: killed at any moment, and started again on its directory and its ports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tailrace.testing.port import free_port

_READY_S = 30.0
_STOP_S = 120.0
_WORDS_BYTES = 6000


class BrokerProcess:
    """A broker that may die. Every life of it has the same ports."""

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"
        self.kafka_port = free_port()
        self.native_port = free_port()
        self.lives = 0
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._end(signal.SIGKILL if error is not None else signal.SIGTERM)
        if error is not None:
            error.add_note(f"the broker's last words:\n{self.last_words()}")

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        assert self._process is None, "it is running"
        self.lives += 1
        command = [sys.executable, "-m", "tailrace", "up", "--data-dir", str(self.data_dir)]
        command += ["--kafka-port", str(self.kafka_port), "--native-port", str(self.native_port)]
        command += ["--http-port", "0"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:  # ends with the process, if it cannot start
            if line.rstrip() == "ready":
                break
        else:
            raise AssertionError(f"the broker did not start:\n{self.last_words()}")
        ports = json.loads((self.data_dir / "tailrace.ports.json").read_text())
        assert ports["pid"] == self.pid, "the file of ports is of an earlier life"
        assert (ports["kafka"], ports["native"]) == (self.kafka_port, self.native_port)

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is not running"
        return self._process.pid

    def check(self) -> None:
        """AssertionError if it has ended by itself."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the broker ended with {code}:\n{self.last_words()}"

    def kill(self) -> None:
        """SIGKILL: nothing is flushed and nobody is told."""
        code = self._end(signal.SIGKILL)
        assert code == -signal.SIGKILL, f"the broker had ended with {code}:\n{self.last_words()}"

    def stop(self) -> None:
        """SIGTERM: everything is finished first."""
        code = self._end(signal.SIGTERM)
        assert code == 0, f"the broker stopped with {code}:\n{self.last_words()}"

    def memory_bytes(self) -> int:
        """Its resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell")

    def last_words(self) -> str:
        """The end of its log, over all its lives."""
        return self._log.read_bytes()[-_WORDS_BYTES:].decode(errors="replace")

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None, "it is not running"
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"no end within {_STOP_S:g} s of {how.name}:\n{self.last_words()}") from None
        return process.returncode
