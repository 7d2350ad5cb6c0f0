"""The command loop of the drivers that are written in Python, and the consumer that reads in the background.

The protocol is told in ../clients/driver.py. A driver is a class with one method per command, named
`do_<op>`, that takes the command's fields as keywords.
"""

from __future__ import annotations

import base64
import json
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

C = TypeVar("C")
R = TypeVar("R")

Row = dict[str, Any]


class Refused(Exception):
    """What the client reported; `code` is Kafka's number where it has one."""

    def __init__(self, text: str, code: int | None) -> None:
        """Both go into the answer as they are."""
        super().__init__(text)
        self.code = code


def serve(driver: object) -> None:
    """Answer commands until the input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        method = getattr(driver, "do_" + command.pop("op"))
        answer: Row
        try:
            answer = {"ok": method(**command)}
        except Refused as error:
            answer = {"error": str(error), "code": error.code}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "code": None}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def encode(data: bytes | str | None) -> str | None:
    """Bytes as the protocol carries them."""
    if isinstance(data, str):
        data = data.encode()
    return None if data is None else base64.b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    """The way back."""
    return None if text is None else base64.b64decode(text)


class Rows:
    """What a consumer read and nobody took yet; an error in it comes up at the next take."""

    def __init__(self) -> None:
        """Empty."""
        self._queue: queue.SimpleQueue[Row | Exception] = queue.SimpleQueue()

    def put(self, row: Row | Exception) -> None:
        """Called where the consumer reads."""
        self._queue.put(row)

    def take(self, count: int, timeout_ms: int) -> list[Row]:
        """Up to so many, and not waiting longer than this."""
        end = time.monotonic() + timeout_ms / 1000
        rows: list[Row] = []
        while len(rows) < count:
            try:
                row = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(row, Exception):
                raise row
            rows.append(row)
        return rows


class Reader(Generic[C]):
    """A consumer and the one thread that uses it: it reads, and between two reads does what it is asked."""

    def __init__(self, consumer: C, poll: Callable[[C, Rows], None]) -> None:
        """`poll` reads once, not longer than a fraction of a second."""
        self.rows = Rows()
        self.revoked: list[tuple[str, int]] = []
        self._consumer = consumer
        self._poll = poll
        self._asked: queue.SimpleQueue[tuple[Callable[[C], Any], Future[Any]]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """From here on the consumer belongs to the thread."""
        self._thread.start()

    def call(self, what: Callable[[C], R]) -> R:
        """Have the thread do this with the consumer."""
        done: Future[R] = Future()
        self._asked.put((what, done))
        return done.result(40)

    def stop(self) -> C:
        """End the thread, and hand the consumer back."""
        self._ended.set()
        self._thread.join(30)
        return self._consumer

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._poll(self._consumer, self.rows)
            except Exception as error:
                self.rows.put(error)
                self._ended.wait(0.2)
            while not self._asked.empty():
                what, done = self._asked.get()
                try:
                    done.set_result(what(self._consumer))
                except Exception as error:
                    done.set_exception(error)
