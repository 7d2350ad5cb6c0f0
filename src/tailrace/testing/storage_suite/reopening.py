"""Cases of an engine that keeps what it acknowledged: closed and opened again, everything is as it was."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import OffsetOutOfRange
from tailrace.testing.storage_suite.history import History
from tailrace.testing.storage_suite.stage import FIRST, OTHER_TOPIC, SECOND, Cases, Stage, refused


class ReopenCases(Cases):
    """Closing and opening."""

    def test_batches_and_offsets_survive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            histories = [await stage.create(), await stage.create(SECOND), await stage.create(OTHER_TOPIC)]
            for turn in range(4):
                for index, history in enumerate(histories):
                    await history.fill(*range(1, 6 + index), epoch=turn)
                    await history.append_durably(history.draft(2, value_bytes=200_000), epoch=turn)
                await _reopen(stage, *histories)

        self.run(tmp_path, scenario)

    def test_an_empty_log_survives(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await _reopen(stage, history)
            await history.fill(2)
            await _reopen(stage, history)

        self.run(tmp_path, scenario)

    def test_what_was_not_waited_for_survives_closing(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for _ in range(30):
                history.append(history.draft(2))
            await _reopen(stage, history)
            end = history.log.end_offset
            assert end == 60, f"60 records were appended before closing, and the log ends at {end}"

        self.run(tmp_path, scenario)

    def test_a_log_closed_by_itself_survives(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            history.append(history.draft(4))
            await history.log.close()
            await stage.reopen(history)
            await history.check()
            end = history.log.durable_offset
            assert end == 4, f"4 records were appended before closing, and the log ends at {end}"

        self.run(tmp_path, scenario)

    def test_gaps_survive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for base_offset in (3, 10, 12, 500):
                history.follow(history.draft(2), base_offset=base_offset, epoch=base_offset)
            await _reopen(stage, history)

        self.run(tmp_path, scenario)

    def test_producers_survive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            drafts = [
                history.draft_of(producer_id, sequence=n) for n in range(7) for producer_id in (1, 2, 900)
            ]
            for draft in drafts:
                history.append(draft)
            await _reopen(stage, history)
            history.check_repeated(drafts[-1], base_offset=history.batches[-1].base_offset)

        self.run(tmp_path, scenario)

    def test_truncation_survives(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for epoch in range(4):
                for sequence in range(5):
                    history.append(history.draft_of(epoch, sequence=sequence), epoch=epoch)
                await history.wait_durable()
                await history.truncate(history.log.end_offset - 3)
                await _reopen(stage, history)
                await history.fill(3, epoch=epoch)

        self.run(tmp_path, scenario)

    def test_batches_over_truncated_ones_survive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for turn in range(4):
                await history.fill(4, 4, 4, epoch=turn)
                await history.truncate(history.log.end_offset - 7)
                await history.fill(3, 3, epoch=turn + 1)
                await _reopen(stage, history)

        self.run(tmp_path, scenario)

    def test_the_start_survives(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5, 5)
            for offset in (3, 5, 12, 20):
                await history.trim(offset)
                await _reopen(stage, history)
                with refused(
                    OffsetOutOfRange, f"a read at {offset - 1} of a reopened log trimmed to {offset}"
                ):
                    await history.read(offset - 1)
            await history.fill(2)
            await _reopen(stage, history)

        self.run(tmp_path, scenario)

    def test_deletion_survives(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, other = await stage.create(), await stage.create(SECOND)
            await history.fill(3, 3)
            await other.fill(2, 2)
            await stage.engine.delete(FIRST)
            await _reopen(stage, other)
            assert stage.engine.get(FIRST) is None, "a deleted log is back"
            history = await stage.create()
            await history.check()
            await history.fill(1)
            await _reopen(stage, history, other)

        self.run(tmp_path, scenario)

    def test_re_creation_survives_without_old_data(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5)
            await stage.engine.delete(FIRST)
            history = await stage.create()
            await _reopen(stage, history)
            await history.fill(2)
            await _reopen(stage, history)

        self.run(tmp_path, scenario)


async def _reopen(stage: Stage, *histories: History) -> None:
    """Close and open; offsets, epochs, producers and every byte must be what they were."""
    before = [(_offsets(h), list(h.log.epochs), h.log.producers.copy()) for h in histories]
    await stage.reopen(*histories)
    for history, (offsets, epochs, producers) in zip(histories, before, strict=True):
        log = history.log
        assert _offsets(history) == offsets, f"start and end were {offsets}, and are {_offsets(history)}"
        assert log.durable_offset == log.end_offset, (
            f"reopened, only {log.durable_offset} of {offsets} is durable"
        )
        assert list(log.epochs) == epochs, f"the epochs were {epochs}, and are {log.epochs}"
        assert log.producers == producers, f"{producers} have become {log.producers}, or others"
        await history.check()


def _offsets(history: History) -> tuple[int, int]:
    return history.log.start_offset, history.log.end_offset
