"""A store whose content is also kept in cluster.json, so that the store can be rebuilt if it is lost.

The file follows the store: it is written a moment after a commit, in a thread, once for all commits of that
moment, and when the store is closed. It may be behind the store, never ahead of it. So a store that is behind
the file, or of another cluster, is not the one that was written last, and its first reading is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from tailrace.cluster import record
from tailrace.cluster.image_file import IMAGE, PREVIOUS, load_newest, save, write_image
from tailrace.cluster.store import Entry, Rows, Store
from tailrace.model import StorageError
from tailrace.runtime import wait_at_most

logger = logging.getLogger(__name__)

_GATHER_S = 0.1
_RETRY_S = 10.0


class MirroredStore:
    """The store given to it, which it closes, and its image in a directory."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._entries: dict[str, Entry] | None = None  # None: not read yet
        self._revision = 0
        self._written = 0  # the revision that the file has
        self._closing = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<MirroredStore {self._store} in {self._directory / IMAGE}>"

    def __str__(self) -> str:
        return str(self._store)

    async def read(self, prefix: str = "") -> Rows:
        if self._entries is None:
            await self._load()
        return await self._store.read(prefix)

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        if self._entries is None:
            await self._load()
        revision = await self._store.commit(checks=checks, puts=puts, deletes=deletes)
        if revision is not None:
            self._take(revision, puts, deletes)
        return revision

    async def close(self) -> None:
        self._closing.set()
        if self._writing is not None:
            await self._writing
            self._writing = None
        await self._store.close()

    # ---- inside

    async def _load(self) -> None:
        rows = await self._store.read()
        image = await asyncio.to_thread(load_newest, self._directory)
        if image is not None:
            check_not_older(rows, image[1], directory=self._directory)
        if self._entries is None:
            self._entries, self._revision = dict(rows.entries), rows.revision

    def _take(self, revision: int, puts: Mapping[str, str], deletes: Collection[str]) -> None:
        assert self._entries is not None
        for key in deletes:
            self._entries.pop(key, None)
        for key, value in puts.items():
            self._entries[key] = Entry(value, revision)
        self._revision = max(self._revision, revision)
        if self._writing is None or self._writing.done():
            work = self._write_until_equal()
            self._writing = asyncio.get_running_loop().create_task(work, name="cluster.json")

    async def _write_until_equal(self) -> None:
        """Returns when the file has what the store has; at the end of the store after one more attempt."""
        wait_s = _GATHER_S
        while self._written != self._revision:
            await wait_at_most(self._closing, wait_s)
            is_last = self._closing.is_set()
            rows = Rows(revision=self._revision, entries=dict(sorted((self._entries or {}).items())))
            try:
                await asyncio.to_thread(self._save, rows)
                self._written, wait_s = rows.revision, _GATHER_S
            except OSError as error:
                logger.warning("image of the metadata not written: %s %s", self._directory / IMAGE, error)
                wait_s = _RETRY_S
                if is_last:
                    return

    def _save(self, rows: Rows) -> None:
        save(self._directory, write_image(rows))


def check_not_older(rows: Rows, image: Rows, *, directory: Path) -> None:
    """Raise StorageError unless the rows can be what the store held after the image was written."""
    found, expected = _cluster_id(rows), _cluster_id(image)
    if not rows.entries:
        reason = f"the metadata is missing or empty, and {IMAGE} has {_topic_count(image)} topics"
    elif found != expected:
        reason = f"the metadata is of cluster {found}, and {IMAGE} of cluster {expected}"
    elif rows.revision < image.revision:
        reason = f"the metadata has revision {rows.revision}, and {IMAGE} the later one {image.revision}"
    else:
        return
    raise StorageError(
        "start in",
        str(directory),
        reason,
        hint=f"To restore what {IMAGE} has: tailrace storage rebuild-metadata {directory}. To go on with the "
        f"metadata as it is, move {IMAGE} and {PREVIOUS} away",
    )


def _cluster_id(rows: Rows) -> str:
    try:
        return record.read_cluster(rows.entries)
    except ValueError:
        return ""


def _topic_count(rows: Rows) -> int:
    return sum(key.startswith(record.TOPICS) for key in rows.entries)
