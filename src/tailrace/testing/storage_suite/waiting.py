"""Cases of waiting for durability."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.model import Offset, StorageError
from tailrace.testing.storage_suite.stage import Cases, Stage, refused


class WaitCases(Cases):
    """wait_durable: for what was appended, and for what may come."""

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
