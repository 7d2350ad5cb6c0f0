"""What a storage engine is to a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.broker.health import Finding
    from tailrace.cluster import Store
    from tailrace.runtime import Clock
    from tailrace.server.config import ServerConfig
    from tailrace.server.setting import Setting
    from tailrace.storage.api import StorageEngine


StandBy = Callable[[], Awaitable[None]]
"""Called once by an engine that must wait until another process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What an engine says of itself with this configuration, before it is opened."""

    name: str
    place: str  # where the records are, for a person
    directory: str = ""  # where the files of the log are; "": there are none on this machine
    durable: bool = True  # whether records outlive the process
    locks_directory: bool = False  # by itself; else the process locks the data directory
    file_per_partition: bool = False  # so that the limit on open files bounds the partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An engine that serves. Both are closed by the node: the metadata first, the storage last."""

    storage: StorageEngine
    store: Store  # of the metadata


class Engine(Protocol):
    """One way to keep logs and metadata."""

    name: str
    doc: str
    """How it keeps records, as the end of the sentence "NAME ..."."""

    def settings(self) -> Sequence[Setting]:
        """Its own table of the configuration, named as the engine is."""

    def check(self, config: ServerConfig, /) -> None:
        """ConfigError for settings that it cannot be opened with; nothing has been touched then."""

    def describe(self, config: ServerConfig, /) -> Description:
        """What it says of itself; opens nothing."""

    async def open(
        self, config: ServerConfig, /, *, clock: Clock, owns_loop: bool, stand_by: StandBy
    ) -> Opened:
        """Serve what is there; StorageError or ConfigError if that cannot be, and nothing stays open.

        An engine whose records are served by one process at a time may wait for another one to end.
        """

    def examine(self, config: ServerConfig, /) -> Iterator[Finding]:
        """What `tailrace doctor` tells of the place where the records are."""
