"""Publishers and workers as the one who started them sees them: running, or ended with their last words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tailrace.testing.chaos.notes import Note, read_notes

_END_S = 60.0
_WORDS_BYTES = 4000


class _Hand(NamedTuple):
    name: str
    notes: Path
    errors: Path
    process: subprocess.Popen[bytes]


class Crew:
    """Processes that live again and again, each with a file of notes in one directory."""

    def __init__(self, directory: Path, *, port: int, seed: int) -> None:
        self._directory = directory
        self._port = port
        self._seed = seed
        self._hands: list[_Hand] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hand in self._hands:
            if hand.process.poll() is None:
                os.killpg(hand.process.pid, signal.SIGKILL)  # with the life that it leads
            hand.process.communicate()

    def start(self, role: str, name: str, *options: str) -> None:
        """Start a `publisher` or a `worker`."""
        notes, errors = self._directory / f"{name}.notes", self._directory / f"{name}.errors"
        command = [sys.executable, "-m", f"tailrace.testing.chaos.{role}", *options]
        command += ["--port", str(self._port), "--seed", str(self._seed)]
        command += ["--name", name, "--notes", str(notes)]
        with errors.open("wb") as target:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=target, stderr=target, start_new_session=True
            )
        self._hands.append(_Hand(name, notes, errors, process))

    def check(self) -> None:
        """AssertionError if somebody ended without being told to."""
        for hand in self._hands:
            code = hand.process.poll()
            assert code is None, f"{hand.name} ended with {code}:\n{_last_words(hand)}"

    def end(self, *, starting_with: str = "") -> None:
        """Tell those whose names begin so to end, and wait until they have done what they were at."""
        chosen = [hand for hand in self._hands if hand.name.startswith(starting_with)]
        for hand in chosen:
            assert hand.process.stdin is not None
            hand.process.stdin.close()
        for hand in chosen:
            code = hand.process.wait(_END_S)
            assert code == 0, f"{hand.name} ended with {code}:\n{_last_words(hand)}"
        self._hands = [hand for hand in self._hands if hand not in chosen]

    def notes(self) -> list[Note]:
        """Everything that anybody has written down so far, each in order."""
        files = sorted(self._directory.glob("*.notes"))
        return [note for file in files for note in read_notes(file)]

    def count(self, kind: str) -> int:
        """How many lines of a kind there are by now."""
        return sum(note.kind == kind for note in self.notes())


def _last_words(hand: _Hand) -> str:
    failed = [note.id for note in read_notes(hand.notes) if note.kind == "failed"]
    return "\n".join([*failed, hand.errors.read_bytes()[-_WORDS_BYTES:].decode(errors="replace")])
