"""Cuts of the data directory, each held for the backup that asked for it.

A cut is every file of one moment: logs and metadata (`storage.api.Cut`). It is held by a lease, which the
program that copies it renews. A lease that is not renewed ends, so that a backup that was killed does not
keep files on the disk that the broker has done with.

No topic comes or goes while a cut is made, and the metadata is copied after the logs: every log of the cut
has its topic, and no producer id is handed out twice.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from tailrace.broker.ports import MetadataStore
from tailrace.broker.topics import Topics
from tailrace.model import BrokerError, ErrorCode
from tailrace.storage.api import Cut, CutStorage, StorageEngine

logger = logging.getLogger(__name__)

LEASE_S: Final = 60.0
_CUTS_MAX = 4  # a killed backup leaves its cut for a lease, and must not keep the next one from its work
_CUT_S = 300.0


@dataclass(slots=True)
class Lease:
    """A cut, and when it ends."""

    cut: Cut
    timer: asyncio.TimerHandle | None = None


class Cuts:
    """The cuts that are held now."""

    def __init__(self, topics: Topics, storage: StorageEngine, metadata: MetadataStore) -> None:
        self._topics = topics
        self._storage = storage
        self._metadata = metadata
        self._leases: dict[str, Lease] = {}
        self._making = 0
        self._removals: set[asyncio.Task[None]] = set()

    async def begin(self) -> Cut:
        """A cut with everything acknowledged so far, held for a lease."""
        storage = self._cut_storage()
        if len(self._leases) + self._making >= _CUTS_MAX:
            raise BrokerError(
                f"{_CUTS_MAX} backups are under way. Wait until one has ended; a backup that was killed ends "
                f"within {LEASE_S:.0f} s",
                code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            )
        self._making += 1
        try:
            async with asyncio.timeout(_CUT_S):
                cut = await self._topics.unchanged(self._make(storage))
        except TimeoutError as error:
            raise BrokerError(
                f"the cut was not made within {_CUT_S:.0f} s: the disk is too slow or too busy. Try again",
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from error
        finally:
            self._making -= 1
        self._leases[cut.name] = Lease(cut)
        self._hold(self._leases[cut.name])
        logger.info("cut made for a backup: %s", cut.path)
        return cut

    def renew(self, name: str) -> Cut | None:
        """The cut, held for another lease; None if it is not held any more."""
        lease = self._leases.get(name)
        if lease is None:
            return None
        self._hold(lease)
        return lease.cut

    async def release(self, name: str) -> None:
        """End a lease and remove the cut; one that has ended is no error."""
        removal = self._end(name)
        if removal is not None:
            await asyncio.shield(removal)

    async def close(self) -> None:
        """End every lease."""
        for name in list(self._leases):
            self._end(name)
        await asyncio.gather(*self._removals)

    # ---- inside

    def _cut_storage(self) -> CutStorage:
        if not isinstance(self._storage, CutStorage):
            raise BrokerError(
                "the log of this broker is in memory: there are no files to back up",
                code=ErrorCode.INVALID_REQUEST,
            )
        return self._storage

    async def _make(self, storage: CutStorage) -> Cut:
        cut = await storage.cut()
        try:
            await self._metadata.copy_to(cut.path)
        except BaseException:
            await asyncio.shield(storage.remove_cut(cut))
            raise
        return cut

    def _hold(self, lease: Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
        lease.timer = asyncio.get_running_loop().call_later(LEASE_S, self._expire, lease.cut.name)

    def _expire(self, name: str) -> None:
        logger.warning("backup has not renewed its lease for %d s, its cut is removed: %s", LEASE_S, name)
        self._end(name)

    def _end(self, name: str) -> asyncio.Task[None] | None:
        lease = self._leases.pop(name, None)
        if lease is None:
            return None
        assert lease.timer is not None
        lease.timer.cancel()
        removal = asyncio.get_running_loop().create_task(
            self._cut_storage().remove_cut(lease.cut), name="cut-removal"
        )
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        return removal
