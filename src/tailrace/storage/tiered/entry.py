"""What is sequenced: everything that changes a log, in one order for appends and all else.

An offset is fixed when its batch is sequenced and never changes. An entry is durable when its round is
committed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import Offset
from tailrace.records import Batch

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog

Done = asyncio.Future[None]
"""Resolved when the entry is durable."""


class Append:
    """One batch with its offset. Made once per produced batch, so a plain slotted class."""

    __slots__ = ("batch", "log")

    def __init__(self, log: TieredLog, batch: Batch) -> None:
        self.log = log
        self.batch = batch


@dataclass(slots=True, eq=False)
class Create:
    """A log begins to exist."""

    log: TieredLog
    done: Done | None = None


@dataclass(slots=True, eq=False)
class Delete:
    """A log is gone; its chunks leave later."""

    log: TieredLog
    done: Done | None = None


@dataclass(slots=True, eq=False)
class Trim:
    """A log begins at `offset`."""

    log: TieredLog
    offset: Offset
    done: Done | None = None


@dataclass(slots=True, eq=False)
class Truncate:
    """A log ends at `offset`: batches that end after it are gone."""

    log: TieredLog
    offset: Offset
    done: Done | None = None


Control = Create | Delete | Trim | Truncate
Entry = Append | Control
