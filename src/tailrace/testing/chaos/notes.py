"""What a process that may die at any moment has written down: lines in a file, each there before it went on.

    trying ID                   will be published now
    published ID OFFSET         the broker has confirmed it
    delivered ID AFTER          was handed to a worker; the broker did not send it before AFTER
    acknowledging ID            will be acknowledged now
    acknowledged ID AT          the broker had confirmed the acknowledgement by then
    crashing ID                 the process kills itself now, with this one and others in hand
    failed TEXT                 something happened that must not

Times are of the monotonic clock of the machine, in nanoseconds, which all processes share. A line is one call
to the system: it outlives kill -9, and a file that many lives append to has whole lines only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRYING = "trying"
PUBLISHED = "published"
DELIVERED = "delivered"
ACKNOWLEDGING = "acknowledging"
ACKNOWLEDGED = "acknowledged"
CRASHING = "crashing"
FAILED = "failed"


class Note(NamedTuple):
    """One line."""

    kind: str
    id: str  # of the message; the text of a failure
    number: int  # the offset or the time; -1 where there is none


class Notebook:
    """The file of one process, in all its lives."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def write(self, kind: str, id: str, number: int = -1) -> None:
        """Write a line down before anything else happens."""
        line = f"{kind}\t{number}\t{id}\n".encode()
        written = os.write(self._file, line)
        assert written == len(line), "the disk is full"

    def close(self) -> None:
        os.close(self._file)


def read_notes(path: Path) -> Iterator[Note]:
    """Every line that was written so far."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            kind, number, text = line.rstrip("\n").split("\t", 2)
            yield Note(kind, text, int(number))
