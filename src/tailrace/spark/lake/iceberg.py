"""The table as an Iceberg table, for engines that read those.

    catalogue                _tailrace/iceberg.db, SQLite; the table is `tailrace.records`
    metadata and manifests   _tailrace/iceberg/
    file                     a data file of the partition (topic, dt)
    end of a partition       property "tailrace.end.<topic>.<partition>" (exclusive)
    commits so far           property "tailrace.version"
    id of a topic            property "tailrace.topic.<topic>"
    bad range                property "tailrace.bad.<topic>.<partition>.<first>.<last>": {"topic":...}

Files and properties change in one transaction of pyiceberg, which ends in one row of the catalogue: that row
is the commit. Iceberg names files by absolute paths, so such a lake cannot be moved.

    staged -> placed (each file) -> moved -> logged
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tailrace.model import ConfigError, StorageError, TopicPartition
from tailrace.spark.lake.change import BadRange, Change, Conflict, Snapshot
from tailrace.spark.lake.data_file import DataFile
from tailrace.spark.lake.durable import hold_lock, make_folder, sync_folder
from tailrace.spark.lake.layout import LOCK, OWN
from tailrace.spark.lake.listed import expire_unlisted, place_change
from tailrace.spark.lake.manifest import no_step
from tailrace.spark.lake.placing import check_staged
from tailrace.spark.lake.staging import clear_dead
from tailrace.spark.lake.state import State

_TABLE = ("tailrace", "records")
_CATALOGUE = f"{OWN}/iceberg.db"
_METADATA = f"{OWN}/iceberg"
_VERSION = "tailrace.version"
_END = "tailrace.end."
_BAD = "tailrace.bad."
_TOPIC = "tailrace.topic."
_NOT_IN_URIS = set("#?%")
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # A commit that was planned on another state must fail, not be put on top of the new one.
    "commit.retry.num-retries": "0",
}


def import_pyiceberg() -> None:
    """Check that the packages are there, or say what to install."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "format 'iceberg' needs the package pyiceberg. Run: pip install 'tailrace[lake]'"
        ) from error


class IcebergTable:
    """A table whose log is Iceberg's. One object is used by one thread at a time."""

    format = "iceberg"

    def __init__(self, root: Path) -> None:
        import_pyiceberg()
        if set(str(root)) & _NOT_IN_URIS:
            raise ConfigError(f"lake {str(root)!r}: Iceberg wants a path without any of # ? % in it")
        self.root = root
        self._catalogue = _open_known_catalogue(root)
        self._table = self._open()
        self._listed: dict[str, list[tuple[Any, DataFile]]] = {}  # by manifest, which never change

    def __repr__(self) -> str:
        return f"<IcebergTable {self.root}>"

    def snapshot(self) -> Snapshot:
        return self._read().snapshot()

    def commit(self, change: Change, *, on_step: Callable[[str], None] = no_step) -> Snapshot:
        check_staged(self.root, change.add)
        on_step("staged")
        with hold_lock(self.root / LOCK):
            state = self._read()
            planned = place_change(self.root, state, change, on_step=on_step)
            self._append(planned, version=state.version + 1)
            on_step("logged")
            return self._read().snapshot()

    def recover(self) -> None:
        with hold_lock(self.root / LOCK):
            clear_dead(self.root)

    def expire(self, *, older_than_h: float) -> int:
        oldest_s = time.time() - older_than_h * 3600
        with hold_lock(self.root / LOCK):
            live = self._read().files
            oldest = datetime.datetime.fromtimestamp(oldest_s, tz=datetime.UTC)
            self._table.maintenance.expire_snapshots().older_than(oldest.replace(tzinfo=None)).commit()
            self._expire_manifests(oldest_s)
            return expire_unlisted(self.root, live, oldest_s=oldest_s)

    def _expire_manifests(self, oldest_s: float) -> None:
        """Delete what pyiceberg leaves: the manifests of snapshots that are gone, and of dead commits."""
        self._table.refresh()
        kept: set[str] = set()
        for snapshot in self._table.metadata.snapshots:
            kept.add(Path(snapshot.manifest_list).name)
            kept.update(Path(each.manifest_path).name for each in snapshot.manifests(self._table.io))
        for path in (self.root / _METADATA).glob("*.avro"):
            if path.name not in kept and path.stat().st_mtime <= oldest_s:
                path.unlink()

    def close(self) -> None:
        self._catalogue.close()

    # ---- reading

    def _read(self) -> State:
        self._table.refresh()
        files: dict[str, DataFile] = {}
        manifests: dict[str, list[tuple[Any, DataFile]]] = {}
        snapshot = self._table.current_snapshot()
        for manifest in snapshot.manifests(self._table.io) if snapshot is not None else ():
            manifests[manifest.manifest_path] = listed = self._read_manifest(manifest)
            files.update((file.path, file) for _, file in listed)
        self._listed = manifests
        return State(
            version=int(self._table.properties.get(_VERSION, "0")),
            files=files,
            ends=_ends(self._table.properties),
            bad=_bad(self._table.properties),
            topics=_topics(self._table.properties),
        )

    def _read_manifest(self, manifest: Any) -> list[tuple[Any, DataFile]]:
        from tailrace.spark.lake.iceberg_file import read_listed_file

        known = self._listed.get(manifest.manifest_path)
        if known is not None:
            return known
        entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
        return [(entry.data_file, read_listed_file(self.root, entry.data_file)) for entry in entries]

    # ---- writing

    def _open(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalogue.load_table(_TABLE)
        except NoSuchTableError:
            with hold_lock(self.root / LOCK):
                return self._create()

    def _create(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        try:
            return self._catalogue.load_table(_TABLE)
        except NoSuchTableError:
            pass  # and nobody can make it before us
        make_folder(self.root / _METADATA)
        self._catalogue.create_namespace_if_not_exists(_TABLE[:1])
        made = self._catalogue.create_table(
            _TABLE,
            _schema(),
            location=f"file://{self.root}",
            partition_spec=PartitionSpec(
                PartitionField(source_id=8, field_id=1000, transform=IdentityTransform(), name="topic"),
                PartitionField(source_id=9, field_id=1001, transform=IdentityTransform(), name="dt"),
            ),
            properties={**_PROPERTIES, "write.metadata.path": f"file://{self.root / _METADATA}"},
        )
        sync_folder(self.root / OWN)
        return made

    def _append(self, change: Change, *, version: int) -> None:
        from pyiceberg.exceptions import CommitFailedException

        from tailrace.spark.lake.iceberg_file import listed_file

        work = self._table.transaction()
        work.set_properties({_VERSION: str(version), **_properties(change)})
        if change.add or change.remove:
            update = work.update_snapshot(snapshot_properties={"tailrace.operation": change.operation})
            with update.overwrite() if change.remove else update.merge_append() as files:
                for staged in change.add:
                    files.append_data_file(
                        listed_file(self.root, staged.file, spec_id=self._table.spec().spec_id)
                    )
                removed = {file.path for file in change.remove}
                for listed, file in (each for group in self._listed.values() for each in group):
                    if file.path in removed:
                        files.delete_data_file(listed)
        try:
            work.commit_transaction()
        except CommitFailedException as error:
            raise Conflict(f"{self.root}: another program changed the Iceberg table: {error}") from error


def _open_known_catalogue(root: Path) -> Any:
    """The catalogue, with its tables.

    pyiceberg looks for them and makes those that it did not find: of two that do so at once, one would fail.
    The folder of metadata is made after them, so where it is they are too.
    """
    if (root / _METADATA).is_dir():
        return _open_catalogue(root)
    with hold_lock(root / LOCK):
        return _open_catalogue(root)


def _open_catalogue(root: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        "tailrace",
        **{
            "uri": f"sqlite:///{root / _CATALOGUE}",
            "warehouse": f"file://{root / _METADATA}",
            "py-io-impl": "tailrace.spark.lake.iceberg_disk.SyncedFileIO",
        },
    )


def _schema() -> Any:
    """The columns of the files, numbered as they are there (schema.py), then those that folders tell."""
    from pyiceberg import schema, types

    header = types.StructType(
        types.NestedField(11, "key", types.StringType(), required=False),
        types.NestedField(12, "value", types.BinaryType(), required=False),
    )
    headers = types.ListType(element_id=10, element_type=header, element_required=False)
    columns = [
        ("key", types.BinaryType()),
        ("value", types.BinaryType()),
        ("partition", types.IntegerType()),
        ("offset", types.LongType()),
        ("timestamp", types.TimestamptzType()),
        ("timestampType", types.IntegerType()),
        ("headers", headers),
        ("topic", types.StringType()),
        ("dt", types.DateType()),
    ]
    return schema.Schema(
        *(
            types.NestedField(number, name, kind, required=False)
            for number, (name, kind) in enumerate(columns, start=1)
        )
    )


def _properties(change: Change) -> dict[str, str]:
    ends: dict[str, int] = {}
    for advance in change.advances:
        name = f"{_END}{advance.topic}.{advance.partition}"
        ends[name] = max(advance.end, ends.get(name, 0))
    bad = {
        f"{_BAD}{each.topic}.{each.partition}.{each.first_offset}.{each.last_offset}": (
            msgspec.json.encode(each).decode()
        )
        for each in change.bad
    }
    topics = {f"{_TOPIC}{name}": topic_id for name, topic_id in change.topics.items()}
    return {**{name: str(end) for name, end in ends.items()}, **bad, **topics}


def _ends(properties: dict[str, str]) -> dict[TopicPartition, int]:
    ends = {}
    for name, value in properties.items():
        if name.startswith(_END):
            topic, _, partition = name.removeprefix(_END).rpartition(".")
            if not (topic and partition.isdigit() and value.isdigit()):
                raise StorageError("read", _CATALOGUE, f"the property {name}={value} cannot be")
            ends[TopicPartition(topic, int(partition))] = int(value)
    return ends


def _topics(properties: dict[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(_TOPIC): topic_id
        for name, topic_id in properties.items()
        if name.startswith(_TOPIC)
    }


def _bad(properties: dict[str, str]) -> list[BadRange]:
    return [
        msgspec.json.decode(value, type=BadRange)
        for name, value in sorted(properties.items())
        if name.startswith(_BAD)
    ]
