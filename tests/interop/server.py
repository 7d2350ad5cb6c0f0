"""`tailrace up` as a process of its own, the way a user runs it: started, stopped, killed, started again.

It is ready when it prints the line `ready`; every start takes the same port, as clients come back to
the address they know.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from tailrace.testing.port import free_port

_READY_S = 120
_STOP_S = 120


class ServerProcess:
    """One data directory and the server that runs on it, if one does."""

    def __init__(
        self,
        data_dir: Path,
        *,
        descriptors_max: int = 0,
        listeners: Sequence[Mapping[str, object]] = (),
        **sections: Mapping[str, object],
    ) -> None:
        """`sections` are those of the configuration file, such as broker={"max.connections": 50}.

        `listeners` take the place of those that it would have.
        """
        self._listeners = listeners
        self.ports: Mapping[str, int] = {}
        self.data_dir = data_dir
        self.port = free_port()
        self._config = data_dir.with_name(f"{data_dir.name}.toml")
        self._sections = sections
        self._descriptors_max = descriptors_max
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._ready = False
        self._said_something = threading.Event()  # that it is ready, or its last word
        self._output: deque[str] = deque(maxlen=200)

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the server that runs."""
        assert self._process is not None, "it is not running"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it serves."""
        assert self._process is None, "it is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._config.write_text(_toml(self._sections, self._listeners))
        places = ("--kafka-port", str(self.port), "--native-port", "0", "--http-port", "0")
        self._ready = False
        self._said_something.clear()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tailrace", "up"),
                *("--data-dir", str(self.data_dir)),
                *(() if self._listeners else places),
                *("--config", str(self._config)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        if self._descriptors_max:
            # Before it opens much: an interpreter takes longer to start than this call.
            limits = (self._descriptors_max, self._descriptors_max)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, limits)
        self._said_something.wait(_READY_S)
        if not self._ready:
            self.kill()
            raise AssertionError(f"not ready within {_READY_S} s:\n{self.output()}")
        ports = json.loads((self.data_dir / "tailrace.ports.json").read_text())
        assert ports["pid"] == self.pid, "the file of ports is an older server's"
        assert self._listeners or ports["kafka"] == self.port
        self.port = ports["kafka"]
        self.ports = ports

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL: nothing is flushed, nobody is told."""
        return self._end(signal.SIGKILL)

    def restart(self) -> None:
        """A clean stop, and a new life at the same address."""
        status = self.stop()
        assert status == 0, f"it stopped with {status}:\n{self.output()}"
        self.start()

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def memory_bytes(self) -> int:
        """Its resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def output(self) -> str:
        """The last of what it printed."""
        return "".join(self._output)

    def __enter__(self) -> ServerProcess:
        """Started."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stopped; after a failure what it printed is shown."""
        if error is not None:
            print(f"the server printed:\n{self.output()}")
        if self.running():
            self.stop()

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None and self._reader is not None, "it is not running"
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            status = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)
            raise AssertionError(f"no end within {_STOP_S} s of {how.name}:\n{self.output()}") from None
        finally:
            self._reader.join(_STOP_S)
            assert process.stdout is not None
            process.stdout.close()
        return status

    def _read(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            text = line.decode(errors="replace")
            self._output.append(text)
            if text.rstrip("\r\n") == "ready":
                self._ready = True
                self._said_something.set()
        self._said_something.set()


def _value(value: object) -> str:
    """A value as TOML has it; a table stands in its line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{name} = {json.dumps(each)}" for name, each in value.items()) + "}"


def _toml(sections: Mapping[str, Mapping[str, object]], listeners: Sequence[Mapping[str, object]]) -> str:
    lines: list[str] = []
    for listener in listeners:
        lines.append("[[listeners]]")
        lines += [f"{name} = {_value(value)}" for name, value in listener.items()]
    for section, settings in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join([*lines, ""])
