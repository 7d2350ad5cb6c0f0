"""The table as a Delta Lake table, for engines that read those.

    file                     an `add` action; topic and dt are partition columns, offset and time have stats
    end of a partition       a `txn` action: appId "tailrace/<topic>/<partition>", version = end (exclusive)
    which partitions         configuration "tailrace.partitions": {"orders":[0,1,2]}
    bad range                configuration "tailrace.bad": [{"topic":"orders",...}]
    ids of topics            configuration "tailrace.topics": {"orders":"9644e75a..."}

The package deltalake makes the table, reads its log and writes its checkpoints. Commits are written here, as
the Delta protocol defines them (one JSON action per line, in a file whose number must be free): so each is
synced before it has its name, and is refused unless it follows on the very version that was checked. A change
of the configuration rewrites the table's `metaData`, which happens only with a new
partition, a new topic or a bad range.

    staged -> placed (each file) -> moved -> written -> logged
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.model import ConfigError, StorageError, TopicPartition
from tailrace.spark.codec import KAFKA_SCHEMA
from tailrace.spark.lake.change import BadRange, Change, Conflict, Snapshot
from tailrace.spark.lake.data_file import DataFile
from tailrace.spark.lake.durable import (
    hold_lock,
    link_new,
    remove_temporaries,
    sync_folder,
    write_temporary,
)
from tailrace.spark.lake.layout import LOCK, OWN, read_data_path
from tailrace.spark.lake.listed import expire_unlisted, place_change
from tailrace.spark.lake.manifest import no_step
from tailrace.spark.lake.placing import check_staged
from tailrace.spark.lake.staging import clear_dead
from tailrace.spark.lake.state import State

_LOG = "_delta_log"
_CHECKPOINT_EVERY = 50
_RACES_MAX = 100
_WRITER_VERSION_MAX = 2
_PARTITIONS = "tailrace.partitions"
_BAD = "tailrace.bad"
_TOPICS = "tailrace.topics"
_TIME_MIN_US = -62_135_596_800_000_000  # of the years that a text of a time can tell: 1
_TIME_MAX_US = 253_402_300_799_999_999  # to 9999


def import_deltalake() -> ModuleType:
    """The package, or what to install."""
    try:
        import deltalake
    except ImportError as error:
        raise ConfigError(
            "format 'delta' needs the package deltalake. Run: pip install 'tailrace[lake]'"
        ) from error
    module: ModuleType = deltalake
    return module


class DeltaLakeTable:
    """A table whose log is Delta Lake's. One object is used by one thread at a time."""

    format = "delta"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._delta = import_deltalake()
        self._table: Any = None
        self._state: State | None = None
        if not any((root / _LOG).glob("*.json")):
            with hold_lock(root / LOCK):
                self._create()

    def __repr__(self) -> str:
        return f"<DeltaLakeTable {self.root} version {self._state.version if self._state else '?'}>"

    def snapshot(self) -> Snapshot:
        return self._read().snapshot()

    def commit(self, change: Change, *, on_step: Callable[[str], None] = no_step) -> Snapshot:
        check_staged(self.root, change.add)
        on_step("staged")
        with hold_lock(self.root / LOCK):
            state = self._read()
            planned = place_change(self.root, state, change, on_step=on_step)
            for _ in range(_RACES_MAX):
                if self._append(state, planned, on_step=on_step):
                    on_step("logged")
                    self._checkpoint(state.version + 1)
                    return self._read().snapshot()
                # Another engine was faster. Its commit does no harm unless it touched what this one is about.
                state = self._read()
                state.copy().apply(
                    add=[staged.file for staged in planned.add],
                    remove=[file.path for file in planned.remove],
                    advances=planned.advances,
                    bad=planned.bad,
                    topics=planned.topics,
                )
        raise Conflict(f"{self.root}: other writers were faster {_RACES_MAX} times. Run fewer at once")

    def recover(self) -> None:
        with hold_lock(self.root / LOCK):
            clear_dead(self.root)
            remove_temporaries(self.root / OWN)

    def expire(self, *, older_than_h: float) -> int:
        with hold_lock(self.root / LOCK):
            live = self._read().files
            return expire_unlisted(self.root, live, oldest_s=time.time() - older_than_h * 3600)

    def close(self) -> None:
        self._table = self._state = None

    # ---- reading

    def _read(self) -> State:
        if self._table is None:
            self._table = self._delta.DeltaTable(self.root)
        else:
            self._table.update_incremental()
        if self._state is None or self._state.version != self._table.version():
            self._state = self._read_state()
        return self._state

    def _read_state(self) -> State:
        self._check_protocol()
        configuration = self._table.metadata().configuration
        return State(
            version=self._table.version(),
            files={file.path: file for file in self._read_files()},
            ends=self._read_ends(_partitions(configuration)),
            bad=msgspec.json.decode(configuration.get(_BAD, "[]"), type=list[BadRange]),
            topics=msgspec.json.decode(configuration.get(_TOPICS, "{}"), type=dict[str, str]),
        )

    def _check_protocol(self) -> None:
        version = self._table.protocol().min_writer_version
        if version > _WRITER_VERSION_MAX:
            raise StorageError(
                "open",
                str(self.root / _LOG),
                f"another program made it a Delta table of writer version {version},"
                f" this one writes up to {_WRITER_VERSION_MAX}",
                hint="Archive into a new folder",
            )

    def _read_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends = {}
        for tp in partitions:
            end = self._table.transaction_version(_app_id(tp))
            if end is None:
                raise StorageError("read", str(self.root / _LOG), f"the end of {tp} is lost")
            ends[tp] = int(end)
        return ends

    def _read_files(self) -> Iterable[DataFile]:
        actions = pa.table(self._table.get_add_actions(flatten=True))
        times = [
            actions.column(name).cast(pa.int64()).to_pylist()
            if name in actions.column_names
            else [None] * actions.num_rows
            for name in ("min.timestamp", "max.timestamp")
        ]
        rows = actions.select(["path", "size_bytes", "num_records"]).to_pylist()
        for row, low, high in zip(rows, *times, strict=True):
            yield self._data_file(row["path"], row["size_bytes"], row["num_records"], low, high)

    def _data_file(
        self, path: str, size: int, rows: int | None, low: int | None, high: int | None
    ) -> DataFile:
        name = read_data_path(path)
        if name is None or rows is None:
            raise StorageError(
                "read",
                str(self.root / path),
                "the Delta table has a file that is not Tailrace's",
                hint="Compact it with `tailrace pipeline run compact`, not with another engine",
            )
        if low is None or high is None:
            low, high = _times_of(self.root / path)
        return DataFile(
            path=path,
            topic=name.topic,
            partition=name.partition,
            day=name.day,
            first_offset=name.first_offset,
            last_offset=name.last_offset,
            rows=rows,
            bytes=size,
            min_timestamp_us=low,
            max_timestamp_us=high,
        )

    # ---- writing

    def _create(self) -> None:
        if any((self.root / _LOG).glob("*.json")):
            return  # somebody else was faster
        schema = pa.schema([*_row_fields(), pa.field("topic", pa.string()), pa.field("dt", pa.date32())])
        self._delta.DeltaTable.create(self.root, schema, partition_by=["topic", "dt"])
        self._sync_log(since=0)
        sync_folder(self.root)

    def _append(self, state: State, change: Change, *, on_step: Callable[[str], None]) -> bool:
        actions = _actions(change, at_ms=time.time_ns() // 1_000_000)
        metadata = self._changed_metadata(state, change)
        if metadata is not None:
            actions.append(metadata)
        lines = b"".join(msgspec.json.encode(action) + b"\n" for action in actions)
        temporary = write_temporary(self.root / OWN, lines)  # not among the log's: engines list that folder
        on_step("written")
        return link_new(temporary, self.root / _LOG / f"{state.version + 1:020d}.json")

    def _changed_metadata(self, state: State, change: Change) -> dict[str, Any] | None:
        """The `metaData` action, if the change has a partition, a topic or a bad range that is new here."""
        known = set(state.ends) | {advance.tp for advance in change.advances}
        topics = {**state.topics, **change.topics}
        if len(known) == len(state.ends) and not change.bad and topics == state.topics:
            return None
        metadata = self._table.metadata()
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(known):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        return {
            "metaData": {
                "id": str(metadata.id),
                "name": metadata.name,
                "description": metadata.description,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": self._table.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
                "createdTime": metadata.created_time,
                "configuration": {
                    **metadata.configuration,
                    _PARTITIONS: json.dumps(by_topic),
                    _BAD: msgspec.json.encode([*state.bad, *change.bad]).decode(),
                    _TOPICS: json.dumps(topics),
                },
            }
        }

    def _checkpoint(self, version: int) -> None:
        if version % _CHECKPOINT_EVERY == 0:
            self._read()
            self._table.create_checkpoint()
            self._sync_log(since=version - _CHECKPOINT_EVERY)
            self._table.cleanup_metadata()

    def _sync_log(self, *, since: int) -> None:
        """Sync what deltalake and other engines wrote from a version on: they do not.

        Older entries were synced with an earlier checkpoint, and the oldest are not there any more.
        """
        for path in (self.root / _LOG).iterdir():
            if path.name >= f"{since:020d}":  # _last_checkpoint, too
                with suppress(FileNotFoundError):  # a temporary file of another engine
                    _sync_file(path)
        sync_folder(self.root / _LOG)


def _actions(change: Change, *, at_ms: int) -> list[dict[str, Any]]:
    # Rows that only moved from file to file are no news for whoever streams the table.
    is_news = not (change.add and change.remove) or bool(change.advances)
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": at_ms,
                "operation": change.operation,
                "operationParameters": {},
                "engineInfo": "tailrace",
            }
        }
    ]
    actions += [
        {
            "txn": {"appId": _app_id(tp), "version": end, "lastUpdated": at_ms},
        }
        for tp, end in _last_ends(change).items()
    ]
    actions += [
        {
            "remove": {
                "path": file.path,
                "deletionTimestamp": at_ms,
                "dataChange": is_news,
                "extendedFileMetadata": True,
                "partitionValues": _partition_values(file),
                "size": file.bytes,
            }
        }
        for file in change.remove
    ]
    actions += [
        {
            "add": {
                "path": staged.file.path,
                "partitionValues": _partition_values(staged.file),
                "size": staged.file.bytes,
                "modificationTime": at_ms,
                "dataChange": is_news,
                "stats": json.dumps(_stats(staged.file)),
            }
        }
        for staged in change.add
    ]
    return actions


def _stats(file: DataFile) -> dict[str, Any]:
    low: dict[str, Any] = {"partition": file.partition, "offset": file.first_offset}
    high: dict[str, Any] = {"partition": file.partition, "offset": file.last_offset}
    counts = {"partition": 0, "offset": 0}
    if file.min_timestamp_us >= _TIME_MIN_US and file.max_timestamp_us <= _TIME_MAX_US:
        low["timestamp"] = _time_text(file.min_timestamp_us)
        high["timestamp"] = _time_text(file.max_timestamp_us)
        counts["timestamp"] = 0
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": counts}


def _last_ends(change: Change) -> Mapping[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for advance in change.advances:
        ends[advance.tp] = max(advance.end, ends.get(advance.tp, 0))
    return ends


def _partition_values(file: DataFile) -> dict[str, str]:
    return {"topic": file.topic, "dt": file.day}


def _app_id(tp: TopicPartition) -> str:
    return f"tailrace/{tp.topic}/{tp.partition}"


def _partitions(configuration: Mapping[str, str]) -> list[TopicPartition]:
    by_topic = msgspec.json.decode(configuration.get(_PARTITIONS, "{}"), type=dict[str, list[int]])
    return [TopicPartition(topic, number) for topic, numbers in by_topic.items() for number in numbers]


def _row_fields() -> list[pa.Field]:
    return [field for field in KAFKA_SCHEMA if field.name != "topic"]


def _time_text(time_us: int) -> str:
    """A time as the statistics of Delta tell it: in milliseconds, which is what records have."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    at = epoch + datetime.timedelta(microseconds=time_us)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _times_of(path: Path) -> tuple[int, int]:
    """The earliest and the latest time in a file, from its footer."""
    footer = pq.read_metadata(os.fspath(path))
    index = footer.schema.to_arrow_schema().get_field_index("timestamp")
    stats = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
    return min(int(each.min_raw) for each in stats), max(int(each.max_raw) for each in stats)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
