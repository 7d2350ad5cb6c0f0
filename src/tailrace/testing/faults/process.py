"""A writer process as its parent sees it: started, listened to, killed by its pid, and always ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tailrace.testing.faults.ledger import Ledger

_PIECE_BYTES = 1 << 16


class WriterProcess:
    """`tailrace.testing.faults.writer` on a directory; its reports go into a ledger."""

    def __init__(
        self,
        directory: Path,
        ledger: Ledger,
        *options: str,
        under: Sequence[str] = (),
        deadline_s: float = 60.0,
    ) -> None:
        ledger.begin_life()
        self._ledger = ledger
        self._deadline_s = deadline_s
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [*under, sys.executable, "-m", "tailrace.testing.faults.writer", str(directory), *options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )

    def __enter__(self) -> WriterProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # what it runs under does not take it along
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if error is not None and hasattr(error, "add_note"):
            error.add_note(f"the writer's last words:\n{self.last_words()}")
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, until: Callable[[str], bool]) -> bool:
        """Take reports until one of them is what is waited for; False if the writer ended before it came."""
        ends_at = time.monotonic() + self._deadline_s
        while True:
            *lines, rest = self._rest.split(b"\n")
            for place, line in enumerate(lines):
                report = line.decode()
                self._ledger.observe(report)
                if until(report):
                    self._rest = b"\n".join((*lines[place + 1 :], rest))
                    return True
            self._rest = rest
            piece = self._read(ends_at)
            if not piece:
                return False
            self._rest += piece

    def listen_for(self, changes: int) -> bool:
        """Take reports until so many more changes are acknowledged; False if the writer ended before."""
        enough = self._ledger.acknowledged + changes
        return self.listen(lambda _: self._ledger.acknowledged >= enough)

    def _read(self, ends_at: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], max(0.0, ends_at - time.monotonic()))
        assert ready, f"nothing was heard of the writer for long:\n{self.last_words()}"
        return os.read(pipe, _PIECE_BYTES)

    def kill(self) -> None:
        """Send SIGKILL, then take what was said before it; a line that was cut off was never said."""
        self._process.kill()
        self.wait()
        code = self._process.returncode
        assert code == -signal.SIGKILL, f"the writer ended by itself with {code}:\n{self.last_words()}"

    def end(self) -> None:
        """Kill it, whether or not it has ended by itself, and take what was said before."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Listen until it ends by itself; its exit code."""
        self.listen(lambda _: False)
        return self._process.wait(self._deadline_s)

    def last_words(self) -> str:
        """Why it gave up, and the end of what it wrote to standard error."""
        self._errors.seek(0)
        errors = self._errors.read()[-4000:].decode(errors="replace")
        return f"{self._ledger.failure or 'it did not say why it ended'}\n{errors}"
