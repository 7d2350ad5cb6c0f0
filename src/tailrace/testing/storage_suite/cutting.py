"""Cases of cutting a log: truncating its end, trimming its start, and going on afterwards."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import BrokerError, Offset, OffsetOutOfRange
from tailrace.testing.storage_suite.stage import Cases, Stage, refused


class CutCases(Cases):
    """truncate and trim."""

    def test_truncating_removes_the_batch_at_the_offset_and_all_after(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5, 5)
            for offset, end in ((19, 15), (15, 15), (12, 10), (5, 5), (4, 0)):
                await history.truncate(offset)
                found = history.log.end_offset
                assert found == end, f"truncated at {offset}, the log ends at {found}, not {end}"
                await history.wait_durable()
                await history.check()

        self.run(tmp_path, scenario)

    def test_truncating_at_or_past_the_end_changes_nothing(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5)
            for offset in (10, 11, 1000):
                await history.truncate(offset)
                end = history.log.end_offset
                assert end == 10, f"truncating at {offset} moved the end from 10 to {end}"
            await history.check()

        self.run(tmp_path, scenario)

    def test_after_truncating_other_batches_take_the_offsets(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for turn in range(6):
                await history.fill(3, 4, 5, epoch=turn)
                await history.truncate(history.log.end_offset - 6)
                await history.fill(2, 2, epoch=turn)
                await history.check()

        self.run(tmp_path, scenario)

    def test_what_was_just_appended_can_be_truncated(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(2)
            history.append(history.draft(3))
            history.append(history.draft(3))
            await history.truncate(5)
            history.append(history.draft(7))
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)

    def test_truncating_takes_epochs_back(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for epoch in (1, 2, 3):
                await history.fill(4, epoch=epoch)
            await history.truncate(9)
            epochs = list(history.log.epochs)
            assert epochs == [(1, 0), (2, 4)], f"after truncating epoch 3 away the epochs are {epochs}"
            await history.fill(1, epoch=2)
            await history.fill(1, epoch=5)
            epochs = list(history.log.epochs)
            assert epochs == [(1, 0), (2, 4), (5, 9)], f"after appending again the epochs are {epochs}"

        self.run(tmp_path, scenario)

    def test_truncating_takes_producers_back(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            drafts = [history.draft_of(5, sequence=sequence) for sequence in range(4)]
            for draft in drafts:
                await history.append_durably(draft)
            await history.truncate(2)
            history.check_repeated(drafts[1], base_offset=1)
            undone = history.log.producers.check(drafts[2].validated())
            assert undone is None, f"the batch at 2 was undone, and is still taken for {undone}"
            with refused(BrokerError, "sequence 3 after 1"):
                history.log.producers.check(drafts[3].validated())

        self.run(tmp_path, scenario)

    def test_trimming_moves_the_start(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5)
            await history.trim(5)
            await history.check()
            with refused(OffsetOutOfRange, "a read at 4 of a log trimmed to 5"):
                await history.read(4)
            assert history.log.end_offset == 15, f"trimming moved the end to {history.log.end_offset}"

        self.run(tmp_path, scenario)

    def test_trimming_inside_a_batch_keeps_the_batch(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5)
            for offset in (1, 4, 7, 9, 14):
                await history.trim(offset)
                await history.check()
                with refused(OffsetOutOfRange, f"a read at {offset - 1} of a log trimmed to {offset}"):
                    await history.read(offset - 1)

        self.run(tmp_path, scenario)

    def test_trimming_everything_leaves_the_end(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, epoch=3)
            await history.trim(10)
            await history.check()
            latest = history.log.epochs.latest
            assert latest == 3, f"trimming everything changed the latest epoch to {latest}"
            await history.fill(2)
            assert history.log.start_offset == 10, f"the log starts at {history.log.start_offset}, not 10"
            await history.check()

        self.run(tmp_path, scenario)

    def test_the_start_never_goes_back(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5)
            await history.trim(7)
            for offset in (0, 3, 6):
                await history.log.trim(Offset(offset))
                start = history.log.start_offset
                assert start == 7, f"trimming to {offset} moved the start from 7 to {start}"
            await history.check()

        self.run(tmp_path, scenario)

    def test_trimming_past_the_end_is_out_of_range(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5)
            with refused(OffsetOutOfRange, "trimming a log of 5 records to 6"):
                await history.log.trim(Offset(6))
            await history.check()

        self.run(tmp_path, scenario)

    def test_truncating_the_batch_in_which_the_log_starts(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5)
            await history.trim(7)
            await history.truncate(8)
            await history.wait_durable()
            await history.check()
            await history.fill(3, 3)
            await history.check()

        self.run(tmp_path, scenario)
