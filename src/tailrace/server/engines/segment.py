"""The segment engine: logs as files of the data directory, metadata in SQLite beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.server.engines.directory import cannot_use, shown_path
from tailrace.server.engines.port import Description, Opened, StandBy

if TYPE_CHECKING:
    from tailrace.broker.health import Finding
    from tailrace.cluster import Store
    from tailrace.runtime import Clock
    from tailrace.server.config import ServerConfig
    from tailrace.server.setting import Setting
    from tailrace.storage.encryption.keyring import Keyring
    from tailrace.storage.segment import DirectoryConfig


class SegmentEngine:
    """One data directory has everything, and is locked by the one process that serves it."""

    name = "segment"
    doc = "keeps everything in the data directory"

    def settings(self) -> Sequence[Setting]:
        return ()

    def check(self, _: ServerConfig) -> None:
        """It needs no settings of its own."""

    def describe(self, config: ServerConfig) -> Description:
        return Description(
            name=self.name,
            place=shown_path(config.data_dir),
            directory=str(config.data_dir),
            locks_directory=True,
            file_per_partition=True,
        )

    async def open(
        self,
        config: ServerConfig,
        *,
        clock: Clock,
        owns_loop: bool,
        stand_by: StandBy,  # noqa: ARG002
    ) -> Opened:
        # Half of what a broker imports, and an embedded one in memory does without it.
        from tailrace.cluster import MirroredStore, SqliteStore
        from tailrace.storage.segment import SegmentStorage

        try:
            storage = await SegmentStorage.open(
                config.data_dir,
                config=directory_config(config),
                clock=clock,
                owns_loop=owns_loop,
                encryption=config.encryption.read() if config.encryption is not None else None,
            )
        except OSError as error:
            raise cannot_use(config.data_dir, error) from error
        path = metadata_path(config)
        store: Store = MirroredStore(SqliteStore(path), path.parent)
        if (keyring := storage.directory.keyring) is not None:
            store = await encrypted_store(store, keyring)
        return Opened(storage=storage, store=store)

    def examine(self, config: ServerConfig) -> Iterator[Finding]:
        from tailrace.server.checkup import check_directory

        return check_directory(config)


async def encrypted_store(store: Store, keyring: Keyring) -> Store:
    """The same store, whose secrets are encrypted under a data key of the directory."""
    from tailrace.cluster.encrypted import EncryptedStore
    from tailrace.storage.encryption.secret_value import SecretValues

    encrypted = EncryptedStore(store, await SecretValues.open(keyring))
    await encrypted.encrypt_rest()
    return encrypted


def metadata_path(config: ServerConfig) -> Path:
    """Where topics are kept."""
    from tailrace.cluster import METADATA

    return Path(config.data_dir) / METADATA


def directory_config(config: ServerConfig) -> DirectoryConfig:
    """What the engine goes by."""
    from tailrace.server.assembly import broker_number, queue_bytes_max
    from tailrace.storage.segment import DirectoryConfig

    return DirectoryConfig(
        fsync=config.fsync,
        free_bytes_min=broker_number(config, "disk.free.min"),
        queue_bytes_max=queue_bytes_max(config),
    )
