"""Cases of creating, deleting and closing logs, and of the engine that holds them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.model import Epoch, Offset, PartitionExists, StorageError, UnknownPartition
from tailrace.storage.api import PartitionLog
from tailrace.testing.storage_suite.history import Draft, load_extents
from tailrace.testing.storage_suite.stage import FIRST, OTHER_TOPIC, SECOND, Cases, Stage, refused


class LifecycleCases(Cases):
    """create, get, logs, delete, close, wait_failed."""

    def test_the_suite_fits_the_engine(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            assert stage.engine.durable == self.declares_durable, (
                f"the engine says durable = {stage.engine.durable}: use "
                f"{'DurableStorageSuite' if stage.engine.durable else 'StorageSuite'} for it"
            )

        self.run(tmp_path, scenario)

    def test_logs_are_found_by_their_partition(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            assert not stage.engine.logs(), f"a new engine has {stage.engine.logs()}"
            for partition_id in (FIRST, SECOND, OTHER_TOPIC):
                assert stage.engine.get(partition_id) is None, f"{partition_id} is there before its creation"
                history = await stage.create(partition_id)
                assert history.log.partition_id == partition_id, f"{history.log.partition_id} was created"
                assert stage.engine.get(partition_id) is history.log, f"{partition_id} is not found"
                assert history.log.config == self.config, f"the log has settings {history.log.config}"
            found = {log.partition_id for log in stage.engine.logs()}
            assert found == {FIRST, SECOND, OTHER_TOPIC}, f"the engine's logs are {found}"

        self.run(tmp_path, scenario)

    def test_a_deleted_log_is_gone(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, other = await stage.create(), await stage.create(SECOND)
            await history.fill(3)
            await other.fill(3)
            await stage.engine.delete(FIRST)
            assert stage.engine.get(FIRST) is None, "the deleted log is still found"
            found = [log.partition_id for log in stage.engine.logs()]
            assert found == [SECOND], f"after deleting the first of two logs the engine has {found}"
            await _check_refuses(history.log, "a deleted log")
            await other.check()

        self.run(tmp_path, scenario)

    def test_a_re_created_log_never_shows_old_data(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            for turn in range(3):
                history = await stage.create()
                assert history.log.end_offset == 0, f"a re-created log ends at {history.log.end_offset}"
                assert history.log.epochs.latest is None, f"a re-created log knows {history.log.epochs}"
                await history.check()
                await history.fill(5 - turn, 5 - turn, epoch=turn)
                await history.check()
                await stage.engine.delete(FIRST)

        self.run(tmp_path, scenario)

    def test_deleting_right_after_an_append(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            history.append(history.draft(3))
            await stage.engine.delete(FIRST)
            history = await stage.create()
            await history.check()
            await history.fill(1)
            await history.check()

        self.run(tmp_path, scenario)

    def test_a_reader_finishes_while_its_log_is_deleted(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for value_bytes in (10, 100_000, 10):
                await history.append_durably(history.draft(3, value_bytes=value_bytes))
            found = await history.read(0)
            await stage.engine.delete(FIRST)
            await history.check_slice(found, 0, bytes_max=1 << 24)
            assert await load_extents(found), "the slice is empty"

        self.run(tmp_path, scenario)

    def test_a_log_is_created_once_and_unknown_ones_are_refused(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(3)
            with refused(PartitionExists, "creating a log that is there"):
                await stage.engine.create(FIRST, self.config)
            with refused(UnknownPartition, "deleting a log that is not there"):
                await stage.engine.delete(SECOND)
            with refused(UnknownPartition, "configuring a log that is not there"):
                stage.engine.configure(SECOND, self.config)
            await history.check()

        self.run(tmp_path, scenario)

    def test_closing_a_log_twice_is_harmless(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, other = await stage.create(), await stage.create(SECOND)
            await history.fill(3)
            await history.log.close()
            await history.log.close()
            await _check_refuses(history.log, "a closed log")
            await other.fill(2)
            await other.check()

        self.run(tmp_path, scenario)

    def test_closing_the_engine_twice_is_harmless(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            history.append()
            await stage.engine.close()
            await stage.engine.close()
            await _check_refuses(history.log, "a log of a closed engine")
            with refused(StorageError, "creating a log in a closed engine"):
                await stage.engine.create(SECOND, self.config)

        self.run(tmp_path, scenario)

    def test_a_sound_engine_does_not_fail(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            watcher = asyncio.create_task(stage.engine.wait_failed())
            history = await stage.create()
            await history.fill(3, 3)
            await history.truncate(3)
            await stage.maintain()
            for _ in range(3):  # the watcher's turn, even if nothing above has waited
                await asyncio.sleep(0)
            assert not watcher.done(), f"the engine reports failure: {watcher.result()}"
            watcher.cancel()
            await asyncio.wait([watcher])

        self.run(tmp_path, scenario)


async def _check_refuses(log: PartitionLog, what: str) -> None:
    batch = Draft(timestamps=[0]).validated()
    with refused(StorageError, f"append to {what}"):
        log.append(batch, leader_epoch=Epoch(9))
    with refused(StorageError, f"read_nowait of {what}"):
        log.read_nowait(log.start_offset, bytes_max=100, up_to=log.end_offset)
    with refused(StorageError, f"read of {what}"):
        await log.read(log.start_offset, bytes_max=100, up_to=log.end_offset)
    with refused(StorageError, f"wait_durable on {what}"):
        await log.wait_durable(Offset(log.end_offset + 1))
    with refused(StorageError, f"truncate of {what}"):
        await log.truncate(Offset(0))
    with refused(StorageError, f"trim of {what}"):
        await log.trim(log.start_offset)
    with refused(StorageError, f"find_timestamp in {what}"):
        await log.find_timestamp(0, up_to=log.end_offset)
