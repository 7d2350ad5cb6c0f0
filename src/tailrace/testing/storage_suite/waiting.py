"""Cases of waiting for durability."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.model import Offset, StorageError
from tailrace.storage.api import PartitionLog
from tailrace.testing.storage_suite.stage import Cases, Stage, refused


class WaitCases(Cases):
    """wait_durable: for what was appended, and for what may come; and on_change, which comes first."""

    def test_the_owner_hears_of_a_move_before_those_who_wait(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            owner = _Owner(history.log)
            for _ in range(10):
                end = Offset(history.log.end_offset + 2)
                waiter = _Waiter(owner)
                history.log.tell_durable(end, waiter)
                history.append(history.draft(2))
                await history.wait_durable()
                assert waiter.heard is not None, f"a waiter for offset {end} was not told"
                assert waiter.heard >= end, (
                    f"a waiter for offset {end} was told while the owner knew of {waiter.heard}"
                )

        self.run(tmp_path, scenario)

    def test_the_owner_hears_of_a_truncation_in_the_same_step(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(3, 3, 3, 3)
            owner = _Owner(history.log)
            cutting = asyncio.ensure_future(history.truncate(6))
            while not cutting.done():
                await asyncio.sleep(0)
                durable = history.log.durable_offset
                assert owner.heard == durable, (
                    f"the durable end is {durable}, the owner knows of {owner.heard}"
                )
            await cutting

        self.run(tmp_path, scenario)

    def test_waiting_for_what_is_durable_returns(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.log.wait_durable(Offset(0))
            await history.fill(3)
            await history.log.wait_durable(Offset(2))
            await history.log.wait_durable(Offset(3))

        self.run(tmp_path, scenario)

    def test_an_append_wakes_those_who_wait_for_it(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            waiters = [asyncio.ensure_future(history.log.wait_durable(Offset(end))) for end in (1, 2, 2, 5)]
            await asyncio.sleep(0)
            assert not any(waiter.done() for waiter in waiters), "a wait ended before anything was appended"
            await history.fill(2)
            await asyncio.gather(*waiters[:3])
            assert not waiters[3].done(), "a wait for offset 5 ended at offset 2"
            await history.fill(1, 1, 1)
            await waiters[3]

        self.run(tmp_path, scenario)

    def test_a_wait_for_many_appends_covers_them_all(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            ends = [history.append(history.draft(2)).next_offset for _ in range(50)]
            await asyncio.gather(*(history.log.wait_durable(Offset(end)) for end in reversed(ends)))
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)

    def test_a_cancelled_wait_disturbs_nobody(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            given_up = asyncio.ensure_future(history.log.wait_durable(Offset(1)))
            patient = asyncio.ensure_future(history.log.wait_durable(Offset(1)))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert given_up.cancelled(), "a cancelled wait went on"
            await history.fill(1)
            await patient
            await history.check()

        self.run(tmp_path, scenario)

    def test_closing_wakes_those_who_wait_in_vain(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(1)
            waiter = asyncio.ensure_future(history.log.wait_durable(Offset(2)))
            await asyncio.sleep(0)
            await history.log.close()
            with refused(StorageError, "a wait for what never comes"):
                await waiter

        self.run(tmp_path, scenario)

    def test_deleting_wakes_those_who_wait_in_vain(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            waiter = asyncio.ensure_future(history.log.wait_durable(Offset(1)))
            await asyncio.sleep(0)
            await stage.engine.delete(history.log.partition_id)
            with refused(StorageError, "a wait on a deleted log"):
                await waiter

        self.run(tmp_path, scenario)


class _Owner:
    """What the owner of a log knows of its durable end."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.heard = log.durable_offset
        log.on_change = self._hear

    def _hear(self) -> None:
        self.heard = self._log.durable_offset


class _Waiter:
    """Notes what the owner knew when it was told."""

    def __init__(self, owner: _Owner) -> None:
        self._owner = owner
        self.heard: Offset | None = None

    def done(self) -> bool:
        return self.heard is not None

    def set_result(self, _: None) -> None:
        self.heard = self._owner.heard

    def set_exception(self, error: Exception) -> None:
        raise error
