"""A pipeline over a lake, again and again: what `every_s` of its config asks for.

Such a run is declared beside the archive that makes the lake, and may well start first: until the lake is
there, with the topics that the config names, it waits, and says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol, TypeVar

from tailrace.model import ConfigError
from tailrace.spark.lake import open_table
from tailrace.spark.lake.layout import resolve_root
from tailrace.spark.lake.marker import read_format
from tailrace.spark.pipelines.progress import Observer, Progress

_LOOK_EVERY_S = 2.0
_EVERY_S_LEAST = 1.0
_EVERY_S_MOST = 1e9

T = TypeVar("T")


class Repeated(Protocol):
    """As much of a config as is needed here."""

    @property
    def lake(self) -> str: ...

    @property
    def topic(self) -> Sequence[str]: ...


def check_every(pipeline: str, every_s: float | None) -> None:
    """ConfigError with the key and the fix."""
    if every_s is not None and not _EVERY_S_LEAST <= every_s <= _EVERY_S_MOST:
        raise ConfigError(
            f"{pipeline}: every_s is {every_s}. Give at least {_EVERY_S_LEAST:g}, or leave it out"
        )


def repeat(
    work: Callable[[], T],
    config: Repeated,
    *,
    every_s: float,
    pipeline: str,
    observe: Observer,
    stop: threading.Event,
) -> T | None:
    """Do the work, and again `every_s` after its end, until `stop` is set; what it gave last, if anything."""
    done: T | None = None
    while not stop.is_set():
        lacks = _find_lack(config)
        if lacks is None:
            done = work()
            stop.wait(every_s)
        else:
            note = f"waiting for {lacks}"
            observe(Progress(pipeline=pipeline, batch=0, rows=0, rows_per_s=0.0, lag=None, note=note))
            stop.wait(min(every_s, _LOOK_EVERY_S))  # a folder gives no sign when it is there
    return done


def _find_lack(config: Repeated) -> str | None:
    """What is not there yet, in words."""
    if read_format(resolve_root(config.lake)) is None:
        return f"the lake {config.lake}"
    if not config.topic:
        return None
    with closing(open_table(config.lake)) as table:
        there = {file.topic for file in table.snapshot().files}
    missing = [topic for topic in config.topic if topic not in there]
    return f"{', '.join(missing)} in the lake {config.lake}" if missing else None
