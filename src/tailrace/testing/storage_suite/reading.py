"""Cases of reading: whole batches, limits, borders, readers beside a writer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.model import Offset, OffsetOutOfRange
from tailrace.testing.storage_suite.history import History, load_extents
from tailrace.testing.storage_suite.stage import Cases, Stage

_READERS = 4
_WRITES = 120


class ReadCases(Cases):
    """read and read_nowait."""

    def test_an_offset_inside_a_batch_reads_the_whole_batch(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 1, 3, 40)
            for offset in range(history.log.durable_offset):
                await history.check_read(offset)
                await history.check_read(offset, bytes_max=1)

        self.run(tmp_path, scenario)

    def test_a_limit_below_one_batch_still_reads_it(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(3, 2, 1)
            for bytes_max in (0, 1, 61, len(history.batches[0].data) - 1):
                next_offset = await history.check_read(0, bytes_max=bytes_max)
                assert next_offset == 3, f"a read of {bytes_max} bytes went on to {next_offset}, not 3"

        self.run(tmp_path, scenario)

    def test_a_read_stays_within_its_limit(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(*([2] * 60))
            size = len(history.batches[0].data)
            for bytes_max in (size, 2 * size - 1, 2 * size, 5 * size + 1, 59 * size, 1000 * size):
                await history.check(bytes_max=bytes_max)

        self.run(tmp_path, scenario)

    def test_a_large_limit_does_not_read_batch_by_batch_for_ever(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(*([1] * 100))
            found = await history.read(0)
            assert found.next_offset > 1, "a read without a limit returns a single batch of a hundred"

        self.run(tmp_path, scenario)

    def test_read_and_read_nowait_find_the_same(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(3, 4, 5, 6)
            for offset in range(history.log.durable_offset + 1):
                end = history.log.durable_offset
                waited = await history.log.read(Offset(offset), bytes_max=400, up_to=end)
                at_once = history.log.read_nowait(Offset(offset), bytes_max=400, up_to=end)
                if at_once is not None:
                    assert await load_extents(at_once) == await load_extents(waited), (
                        f"they differ at {offset}"
                    )
                    assert at_once.next_offset == waited.next_offset, f"they go on differently from {offset}"

        self.run(tmp_path, scenario)

    def test_a_slice_loads_in_one_piece(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(2, 3)
            data = await (await history.read(0, bytes_max=1)).load()
            assert data == history.batches[0].data, "the bytes of the first batch have changed"

        self.run(tmp_path, scenario)

    def test_a_read_at_the_durable_end_is_empty(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            for _ in range(3):
                end = history.log.durable_offset
                found = await history.read(end)
                assert (found.size, found.next_offset) == (0, end), f"a read at the end, {end}, found {found}"
                await history.fill(2)

        self.run(tmp_path, scenario)

    def test_offsets_outside_of_the_log_are_out_of_range(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 5, 5)
            await history.trim(7)
            for offset in (-1, 0, 4, 6, 16, 1 << 40):
                for up_to in (Offset(10), Offset(15)):
                    await _check_out_of_range(history, offset, up_to)

        self.run(tmp_path, scenario)

    def test_a_read_shows_only_what_lies_below_its_limit(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(5, 1, 3, 40, 2)
            limits = [0, *(batch.next_offset for batch in history.batches)]
            for up_to in limits:
                for offset in range(up_to):
                    await history.check_read(offset, up_to=up_to)
                    await history.check_read(offset, bytes_max=1, up_to=up_to)
                for offset in range(up_to, history.log.end_offset + 1):
                    await _check_empty(history, offset, up_to=up_to)

        self.run(tmp_path, scenario)

    def test_a_read_with_the_log_end_as_its_limit_shows_what_is_not_durable_yet(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await history.fill(2, 2)
            for _ in range(20):
                history.append(history.draft(3))
                offset = 0
                while offset < history.log.end_offset:
                    offset = await history.check_read(offset, up_to=history.log.end_offset)
            await history.wait_durable()
            await history.check()

        self.run(tmp_path, scenario)

    def test_readers_beside_a_writer_see_every_batch_once(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            readers = [
                asyncio.create_task(_read_along(history, bytes_max=150 << index)) for index in range(_READERS)
            ]
            for turn in range(_WRITES):
                history.append(history.draft(1 + turn % 4))
                if turn % 3 == 0:
                    await history.wait_durable()
                elif turn % 3 == 1:
                    await asyncio.sleep(0)
            await history.wait_durable()
            everything = b"".join(batch.data for batch in history.batches)
            for index, data in enumerate(await asyncio.gather(*readers)):
                assert data == everything, (
                    f"reader {index} saw {len(data)} bytes of {len(everything)}, or others"
                )

        self.run(tmp_path, scenario)


async def _check_out_of_range(history: History, offset: int, up_to: Offset) -> None:
    """The offset does not exist, whatever the limit; the error tells what the reader may see."""
    for name in ("read_nowait", "read"):
        try:
            if name == "read":
                await history.log.read(Offset(offset), bytes_max=100, up_to=up_to)
            elif history.log.read_nowait(Offset(offset), bytes_max=100, up_to=up_to) is None:
                continue  # the engine would have to look: `read` tells
        except OffsetOutOfRange as error:
            named = (error.start, error.end)
            assert named == (7, up_to), f"{name} at {offset} up to {up_to} tells of {named}, not (7, {up_to})"
        else:
            raise AssertionError(f"{name} at {offset} of 7 to 15 must be refused with OffsetOutOfRange")


async def _check_empty(history: History, offset: int, *, up_to: int) -> None:
    try:
        found = await history.read(offset, up_to=up_to)
    except OffsetOutOfRange as error:
        end = history.log.end_offset
        raise AssertionError(
            f"a read at {offset} up to {up_to} is refused, and the log ends at {end}"
        ) from error
    assert found.size == 0, f"a read at {offset} up to {up_to} found {found.size} bytes"
    assert found.next_offset == offset, (
        f"an empty read at {offset} up to {up_to} goes on at {found.next_offset}"
    )


async def _read_along(history: History, *, bytes_max: int) -> bytes:
    """Follow the log until everything that the writer will write has been read."""
    parts = []
    count = 0
    offset = 0
    while count < _WRITES:
        await history.log.wait_durable(Offset(offset + 1))
        found = await history.read(offset, bytes_max=bytes_max)
        await history.check_slice(found, offset, bytes_max=bytes_max)
        parts.append(await load_extents(found))
        count += sum(offset <= batch.base_offset < found.next_offset for batch in history.batches)
        offset = found.next_offset
    return b"".join(parts)
