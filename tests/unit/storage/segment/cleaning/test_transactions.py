"""Transactions in a compacted log: what supersedes, what goes, and how long markers stay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.storage.segment.cleaning.conftest import DELAY_MS, LOG, Pair, Rig
from tests.unit.storage.segment.cleaning.conftest import play as play_alone

from tailrace.model import Epoch, Offset
from tailrace.records import BatchFields, Walk, write_marker
from tailrace.storage import LogConfig
from tailrace.storage.segment.names import numbered

A, B = 7, 8


def play(scenario: Callable[[Rig], Awaitable[None]], *, log: LogConfig = LOG) -> None:
    async def main() -> None:
        rig = await Rig(log=log).open()
        await scenario(rig)
        await rig.storage.close()

    play_alone(main)


class Story:
    """Transactions of several producers in the log of a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._sequences: dict[int, int] = {}

    def write(self, *pairs: Pair, producer_id: int = A) -> int:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(pairs)
        fields: BatchFields = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
            "transactional": True,
        }
        return self.rig.append(*pairs, fields=fields).base_offset

    def end(self, *, commit: bool, producer_id: int = A) -> int:
        marker = write_marker(
            producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=self.rig.clock.now_ms()
        )
        return self.rig.log.append(marker, leader_epoch=Epoch(3))

    async def fill(self, rounds: int = 1) -> None:
        """Seal what is there, and let every snapshot that is kept be past it."""
        for _ in range(3 * rounds):
            for number in range(6):
                self.rig.append((b"filler%d" % number, b"v" * 40), fields=_idempotent(self._next_filler()))
            await self.rig.settle()

    def _next_filler(self) -> int:
        number = self._sequences.get(-1, 0)
        self._sequences[-1] = number + 1
        return number

    async def stored(self) -> list[int]:
        return [batch.base_offset for batch in await self.rig.batches()]

    async def kept(self, *keys: bytes) -> dict[bytes, list[int]]:
        found = await self.rig.found()
        return {key: [each.offset for each in found if each.key == key] for key in keys}


def _idempotent(sequence: int) -> BatchFields:
    """State that changes with every batch, so that every checkpoint writes a snapshot."""
    return {"producer_id": 99, "producer_epoch": 0, "base_sequence": sequence}


def forget(story: Story, *producer_ids: int) -> None:
    """As if other batches of the producers had come since: their markers are not the newest ones."""
    for producer_id in producer_ids:
        story.write((b"last%d" % producer_id, b"v"), producer_id=producer_id)
        story.end(commit=True, producer_id=producer_id)


def test_committed_records_supersede_and_aborted_ones_go() -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        rig.append((b"a", b"old"), (b"b", b"old"))  # 0, 1
        story.write((b"a", b"committed"), producer_id=A)  # 2
        story.write((b"b", b"aborted"), producer_id=B)  # 3
        story.end(commit=True, producer_id=A)
        story.end(commit=False, producer_id=B)
        for _ in range(6):  # so that no batch from before is remembered of a producer
            forget(story, A, B)
        await story.fill()
        await rig.compact()
        assert await story.kept(b"a", b"b") == {b"a": [2], b"b": [1]}
        await rig.reopen()
        assert await story.kept(b"a", b"b") == {b"a": [2], b"b": [1]}

    play(scenario)


def test_nothing_of_an_open_transaction_is_touched_or_supersedes() -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        rig.append((b"a", b"old"))  # 0
        story.write((b"a", b"first"), (b"a", b"second"))  # 1, 2
        await story.fill()
        await rig.compact()
        assert (await story.kept(b"a"))[b"a"] == [0, 1, 2]
        story.end(commit=True)
        forget(story, A)
        await story.fill()
        await rig.compact()
        assert (await story.kept(b"a"))[b"a"] == [2]

    play(scenario)


def test_a_marker_goes_after_its_records_and_its_delete_horizon_and_its_entry_with_it() -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        first = story.write((b"a", b"aborted"))
        marker = story.end(commit=False)
        for _ in range(6):
            forget(story, A)
        await story.fill()
        await rig.compact()
        assert first not in await story.stored()
        assert marker in await story.stored()
        (found,) = [batch for batch in await rig.batches() if batch.base_offset == marker]
        assert found.delete_horizon_ms == rig.clock.now_ms() + DELAY_MS
        assert [entry.marker_offset for entry in rig.log.aborted_list] == [marker]
        await rig.reopen()
        assert [entry.marker_offset for entry in rig.log.aborted_list] == [marker]
        rig.clock.advance(DELAY_MS)
        await story.fill()
        await rig.compact()
        assert marker not in await story.stored()
        assert not len(rig.log.aborted_list)
        assert not len(rig.log.applied_aborted)
        await rig.reopen()
        assert not len(rig.log.aborted_list)
        assert rig.log.producers.first_open is None

    play(scenario)


def test_a_marker_stays_while_a_record_of_its_transaction_does() -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        first = story.write((b"a", b"v"))
        marker = story.end(commit=True)
        for _ in range(6):
            forget(story, A)
        for _ in range(3):
            await story.fill()
            await rig.compact()
            rig.clock.advance(DELAY_MS)
        stored = await story.stored()
        assert first in stored and marker in stored
        rig.append((b"a", b"newer"))
        for _ in range(3):
            await story.fill()
            await rig.compact()
            rig.clock.advance(DELAY_MS)
        stored = await story.stored()
        assert first not in stored and marker not in stored
        assert rig.log.producers.first_open is None

    play(scenario)


def test_a_marker_that_an_older_snapshot_lacks_stays() -> None:
    """Recovery from that snapshot, where the transaction is open, must find its end."""

    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        story.write((b"a", b"aborted"))
        await rig.settle()
        marker = story.end(commit=False)
        for _ in range(6):
            forget(story, A)
        await rig.settle()
        for _ in range(3):
            for _ in range(10):
                rig.append((b"filler", b"v" * 40))  # which changes no state, so no snapshot is written
            await rig.compact()
            rig.clock.advance(DELAY_MS)
        assert 0 not in await story.stored()
        older, newer = sorted(await rig.storage.directory.snapshots.offsets(rig.log.path))
        assert older <= marker < newer
        assert marker in await story.stored()
        path = f"{rig.log.path}/{numbered(newer, 'snapshot')}"
        await rig.storage.close()
        rig.disk.flip_bit(path, position=20, bit=0)
        await rig.open()
        assert rig.log.producers.first_open is None

    play(scenario)


def test_a_damaged_list_is_made_again_from_a_compacted_log() -> None:
    async def scenario(rig: Rig) -> None:
        story = Story(rig)
        for number in range(4):
            story.write((b"a%d" % number, b"aborted"))
            story.end(commit=False)
            story.write((b"b%d" % number, b"committed"))
            story.end(commit=True)
        await story.fill()
        await rig.compact()
        visible = await _visible(rig)
        path = next(path for path in rig.disk.paths() if path.endswith(".aborted"))
        await rig.storage.close()
        rig.disk.flip_bit(path, position=25, bit=1)
        await rig.open()
        assert await _visible(rig) == visible

    play(scenario)


async def _visible(rig: Rig) -> list[int]:
    """The offsets that a reader of committed records is shown."""
    data = b"".join(bytes(batch.data) for batch in await rig.batches())
    aborted = rig.log.aborted(Offset(0), rig.log.end_offset)
    return [record.offset for shown in Walk(0).over(data, aborted=aborted) for record in shown.records()]
