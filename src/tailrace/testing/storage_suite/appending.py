"""Cases of appending: offsets, order, what the log writes into a batch, what it derives from it."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import Offset, TailraceError
from tailrace.records import Compression, iter_batches
from tailrace.testing.storage_suite.history import Draft, History, load_extents
from tailrace.testing.storage_suite.stage import OTHER_TOPIC, SECOND, Cases, Stage, refused


class AppendCases(Cases):
    """append, and the properties that tell what it did."""

    def test_a_new_log_is_empty(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            log = history.log
            offsets = (log.start_offset, log.durable_offset, log.end_offset)
            assert offsets == (0, 0, 0), f"start, durable and end of a new log are {offsets}"
            assert log.epochs.latest is None, f"a new log knows epoch {log.epochs.latest}"
            assert len(log.producers) == 0, f"a new log knows {log.producers}"
            await history.check()

        self.run(tmp_path, scenario)

    def test_offsets_follow_one_another(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            offsets = [history.append(history.draft(count)).base_offset for count in (1, 3, 7, 1)]
            assert offsets == [0, 1, 4, 11], f"batches of 1, 3, 7 and 1 records got offsets {offsets}"
            assert history.log.end_offset == 12, f"the log ends at {history.log.end_offset}"

        self.run(tmp_path, scenario)

    def test_batches_are_read_back_in_order_byte_for_byte(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(*range(1, 30))
            await history.check()

        self.run(tmp_path, scenario)

    def test_small_and_large_batches_mix(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for value_bytes in (10, 1 << 20, 100, 20_000, 300_000, 1, 1 << 20):
                history.append(history.draft(2, value_bytes=value_bytes))
            await history.wait_durable()
            await history.check()
            await history.check(bytes_max=1)

        self.run(tmp_path, scenario)

    def test_compressed_batches_stay_as_they_came(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for codec in Compression:
                history.append(
                    Draft(timestamps=[stage.clock.now_ms()] * 5, value_bytes=500, compression=codec)
                )
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)

    def test_the_leader_epoch_is_written_into_the_batch(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for epoch in (0, 0, 3, 7):
                history.append(epoch=epoch)
            await history.wait_durable()
            batches = list(iter_batches(await load_extents(await history.read(0))))
            found = [batch.leader_epoch for batch in batches]
            assert found == [0, 0, 3, 7][: len(found)], f"batches of epochs 0, 0, 3, 7 carry {found}"
            await history.check()

        self.run(tmp_path, scenario)

    def test_epochs_tell_who_wrote_what(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for count, epoch in ((2, 0), (3, 0), (4, 3), (1, 7)):
                history.append(history.draft(count), epoch=epoch)
            epochs = list(history.log.epochs)
            assert epochs == [(0, 0), (3, 5), (7, 9)], f"epochs and their first offsets are {epochs}"
            ended = history.log.epochs.end_of(4, log_end=history.log.end_offset)
            assert ended == (3, 9), f"epoch 4 never was, 3 ended at 9, and the answer is {ended}"

        self.run(tmp_path, scenario)

    def test_producers_are_remembered(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(4)
            drafts = [history.draft_of(77, sequence=sequence, count=2) for sequence in (0, 2)]
            for draft in drafts:
                history.append(draft)
            history.check_repeated(drafts[0], base_offset=4)
            history.check_repeated(drafts[1], base_offset=6)
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)

    def test_a_follower_keeps_offsets_and_epochs(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            history.follow(history.draft(2), base_offset=0, epoch=4)
            history.follow(history.draft(3), base_offset=2, epoch=6)
            await history.wait_durable()
            await history.check()
            epochs = list(history.log.epochs)
            assert epochs == [(4, 0), (6, 2)], f"epochs of a follower and their first offsets are {epochs}"

        self.run(tmp_path, scenario)

    def test_a_follower_may_leave_gaps(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for base_offset in (5, 20, 22, 1000):
                history.follow(history.draft(2), base_offset=base_offset)
            await history.wait_durable()
            await history.check()
            for offset in (0, 7, 19, 24, 999):
                await history.check_read(offset)

        self.run(tmp_path, scenario)

    def test_a_follower_remembers_producers(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            draft = history.draft_of(77, sequence=10)
            history.follow(draft, base_offset=30)
            history.check_repeated(draft, base_offset=30)

        self.run(tmp_path, scenario)

    def test_a_follower_append_below_the_end_is_refused(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5)
            for base_offset in (0, 5, 9):
                batch = history.draft().validated(base_offset=base_offset, leader_epoch=0)
                with refused(TailraceError, f"a follower's batch at {base_offset} below the end, 10,"):
                    history.log.append(batch)
            assert history.log.end_offset == 10, f"a refused batch moved the end to {history.log.end_offset}"
            await history.check()

        self.run(tmp_path, scenario)

    def test_partitions_are_independent(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            histories = [await stage.create(), await stage.create(SECOND), await stage.create(OTHER_TOPIC)]
            for turn in range(1, 8):
                for index, history in enumerate(histories):
                    history.append(history.draft(turn + index), epoch=index)
            await histories[1].wait_durable()
            await histories[1].truncate(3)
            await histories[2].wait_durable()
            await histories[2].trim(8)
            for index, history in enumerate(histories):
                await history.wait_durable()
                await history.check()
                latest = history.log.epochs.latest
                assert latest == index, f"the epoch of partition {history.log.partition_id} is {latest}"

        self.run(tmp_path, scenario)

    def test_a_read_up_to_the_durable_end_shows_nothing_above_it(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(2, 2)
            for _ in range(20):
                history.append(history.draft(3))
                _check_nothing_early(history)
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)


def _check_nothing_early(history: History) -> None:
    """No await in here, so that the durable end stands still."""
    log = history.log
    history.check_offsets()
    durable = log.durable_offset
    for offset in (0, durable, log.end_offset):
        found = log.read_nowait(Offset(offset), bytes_max=1 << 20, up_to=durable)
        shown = found.next_offset if found else durable
        assert shown <= max(durable, offset), (
            f"a read from {offset} shows {shown}, where only {durable} is durable"
        )
        assert found is None or offset < durable or found.size == 0, (
            f"{offset} shows {found}, where only {durable} is durable"
        )
