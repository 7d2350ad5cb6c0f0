"""The memory engine: rings and metadata that end with the process, or come back from a snapshot.

With `memory.snapshot.path` the metadata is in SQLite in that directory, durable with every change, and only
the rings are as old as the last snapshot. So a crash never brings back a topic that was deleted, a user that
was disabled, or a number that was given out: epochs of partitions and ids of producers only grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.model import PartitionId, StorageError
from tailrace.server.engines.directory import cannot_use, shown_path
from tailrace.server.engines.port import Description, Opened, StandBy

if TYPE_CHECKING:
    from tailrace.broker.health import Finding
    from tailrace.cluster import Rows, Store
    from tailrace.runtime import Clock, DirectoryLock
    from tailrace.server.config import ServerConfig
    from tailrace.server.setting import Setting
    from tailrace.storage.memory import MemoryStorage, Snapshots
    from tailrace.storage.memory.snapshot_file import Snapshot

INTERVAL_MS = 60_000
PATH, INTERVAL = "snapshot.path", "snapshot.interval.ms"
"""In the engine's own table."""


class MemoryEngine:
    """What topics may set for it is `tailrace.storage.memory.option`."""

    name = "memory"
    doc = "keeps a bounded ring per partition and forgets it at the end, unless memory.snapshot.path is set"

    def settings(self) -> Sequence[Setting]:
        from tailrace.server.kind import Checked, Number
        from tailrace.server.setting import Setting

        return (
            Setting(
                key=f"memory.{PATH}",
                kind=Checked("directory, or nothing", str, "a directory, or empty"),
                default="",
                doc="The directory of a snapshot, which is written every memory.snapshot.interval.ms and at a"
                " clean stop, and loaded at the start. A crash loses the messages since the last one. Empty"
                " keeps nothing.",
            ),
            Setting(
                key=f"memory.{INTERVAL}",
                kind=Number(low=100),
                default=INTERVAL_MS,
                doc="How long after a snapshot the next one is written, if something has changed.",
            ),
        )

    def check(self, _: ServerConfig) -> None:
        """Every setting of it may be left out."""

    def describe(self, config: ServerConfig) -> Description:
        directory = snapshot_directory(config)
        if directory is None:
            return Description(name=self.name, place="memory", durable=False)
        return Description(
            name=self.name,
            place=f"memory, snapshot in {shown_path(directory)}",
            durable=False,
            locks_directory=directory.absolute() == config.data_dir.absolute(),
        )

    async def open(
        self,
        config: ServerConfig,
        *,
        clock: Clock,
        owns_loop: bool,  # noqa: ARG002
        stand_by: StandBy,  # noqa: ARG002
    ) -> Opened:
        from tailrace.cluster import MemoryStore
        from tailrace.storage.memory import MemoryStorage

        directory = snapshot_directory(config)
        if directory is not None:
            interval_ms = int(str(config.engine_settings.get(INTERVAL, INTERVAL_MS)))
            return await _open(directory, interval_ms=interval_ms, clock=clock)
        return Opened(storage=MemoryStorage(clock=clock), store=MemoryStore())

    def examine(self, _: ServerConfig) -> Iterator[Finding]:
        return iter(())


def snapshot_directory(config: ServerConfig) -> Path | None:
    """Where the snapshot is; None without one."""
    text = str(config.engine_settings.get(PATH, ""))
    return Path(text) if text else None


async def _open(directory: Path, *, interval_ms: int, clock: Clock) -> Opened:
    """Rings out of the snapshot and metadata beside it; StorageError, and nothing stays open."""
    from tailrace.cluster import METADATA, MirroredStore, SqliteStore
    from tailrace.storage.memory import Snapshots

    lock = _lock(directory)
    store: Store | None = None
    try:
        store = MirroredStore(SqliteStore(directory / METADATA), directory)
        snapshots = Snapshots(directory, interval_ms=interval_ms, clock=clock)
        storage = await _restored(snapshots, await store.read(), clock=clock, lock=lock)
    except BaseException:
        if store is not None:
            await store.close()
        lock.release()
        raise
    return Opened(storage=storage, store=store)


def _lock(directory: Path) -> DirectoryLock:
    """The directory, made if it is not there, for this process alone."""
    from tailrace.runtime import DirectoryLock

    try:
        directory.mkdir(parents=True, exist_ok=True)
        return DirectoryLock(str(directory))
    except OSError as error:
        raise cannot_use(directory, error) from error


async def _restored(snapshots: Snapshots, rows: Rows, *, clock: Clock, lock: DirectoryLock) -> MemoryStorage:
    from tailrace.storage.memory import MemoryStorage

    snapshot = await snapshots.load()
    storage = MemoryStorage(clock=clock, snapshots=snapshots, on_closed=lock.release)
    if snapshot is not None:
        storage.restore(snapshot, known=_known_partitions(snapshot, rows, path=snapshots.path))
    return storage


def _known_partitions(snapshot: Snapshot, rows: Rows, *, path: Path) -> frozenset[PartitionId]:
    """The partitions that there still are: a topic may have been deleted since. StorageError without them."""
    from tailrace.cluster import record

    try:
        image = record.read_image(rows.entries)
    except ValueError as error:
        raise StorageError("read metadata in", str(path.parent), str(error)) from error
    if snapshot.logs and snapshot.cluster_id and snapshot.cluster_id != image.cluster_id:
        raise StorageError(
            "load the snapshot",
            str(path),
            f"it is of cluster {snapshot.cluster_id}, and the metadata beside it of"
            f" {image.cluster_id or 'none: it is missing or empty'}",
            hint="Put back the metadata that belongs to it. To start without its messages:"
            f" mv {path} {path}.other",
        )
    return frozenset(
        PartitionId(topic.id, each.index)
        for topic in image.topics
        if not topic.deleted
        for each in topic.partitions
    )
