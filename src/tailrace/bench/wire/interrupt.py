"""Ctrl-C while a load runs: a word that the load looks for, and no exception out of nowhere.

Python raises KeyboardInterrupt between any two instructions: between a socket that was made and the list that
would have closed it, or inside a finaliser that swallows it. A load looks between two turns instead, where
nothing is half done. Whoever presses twice gets the exception.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


class CtrlC:
    """Whether Ctrl-C was pressed."""

    __slots__ = ("_pressed",)

    def __init__(self) -> None:
        self._pressed = False

    def check(self) -> None:
        """Interrupted if it was."""
        if self._pressed:
            raise Interrupted

    def press(self, _number: int, _frame: object) -> None:
        """The handler of the signal."""
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True


@contextmanager
def listening() -> Iterator[CtrlC]:
    """Take Ctrl-C until the end of the block; outside of the main thread there is none to take."""
    ctrl_c = CtrlC()
    if threading.current_thread() is not threading.main_thread():
        yield ctrl_c
        return
    before = signal.signal(signal.SIGINT, ctrl_c.press)
    try:
        yield ctrl_c
    finally:
        signal.signal(signal.SIGINT, before)
