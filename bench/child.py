"""Load in processes of its own, seen from here: a question in, an answer out, never longer than a deadline.

`ask_child` is a process that is told everything at once. A `Child` is told its job, says `ready`, is sent
`go` when all others are ready too, and answers when it is done; several of them make one load.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tailrace.bench.wire import LoadError

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, object]


def _environment() -> dict[str, str]:
    path = [str(ROOT), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}


def ask_child(module: str, question: Mapping[str, object], *, timeout_s: float) -> Row:
    """Run a module that reads one JSON object and prints one; LoadError if it does anything else."""
    process = _spawn(module)
    try:
        said, complaint = process.communicate(json.dumps(question), timeout_s)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{module} took longer than {timeout_s:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return _read(module, said, complaint)


def _read(module: str, said: str, complaint: str) -> Row:
    try:
        answer = json.loads(said)
    except ValueError:
        last = (complaint.strip() or "it printed nothing").splitlines()[-1]
        raise LoadError(f"{module}: {last}") from None
    assert isinstance(answer, dict)
    return answer


def _spawn(module: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *args],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is ours to handle
    )


class Child:
    """One process that waits for its signal."""

    def __init__(self, module: str, job: Mapping[str, object]) -> None:
        self._module = module
        self._process = _spawn(module)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        self.tell(json.dumps(job))

    def tell(self, line: str) -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its last words come with the next `hear`
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def hear(self, *, timeout_s: float) -> str:
        """The next line that it prints; LoadError if there is none in time."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise LoadError(f"{self._module} said nothing for {timeout_s:.0f} s") from None
        if not line:
            self._process.wait(timeout_s)
            assert self._process.stderr is not None
            last = (self._process.stderr.read().strip() or "no message").splitlines()[-1]
            raise LoadError(f"{self._module} ended: {last}")
        return line.strip()

    def hear_row(self, *, timeout_s: float) -> Row:
        """The next line, as JSON."""
        answer = json.loads(self.hear(timeout_s=timeout_s))
        assert isinstance(answer, dict)
        if "error" in answer:
            raise LoadError(str(answer["error"]))
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ends with us."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # of what it was told and never read
                pipe.close()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")
