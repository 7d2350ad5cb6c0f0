"""Cases of transactions: what a log tells of open and aborted ones, cut, trimmed and opened again."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import Epoch, Offset
from tailrace.records import build_batch, read_batch, write_marker
from tailrace.storage.api import PartitionLog
from tailrace.testing.storage_suite.history import History
from tailrace.testing.storage_suite.stage import Cases, Stage

_A, _B = 71, 72
_HOUR_MS = 3600 * 1000


class _Producers:
    """Writes transactions to a log, one record to a batch."""

    def __init__(self, log: PartitionLog, *, timestamp_ms: int) -> None:
        self.log = log
        self._timestamp_ms = timestamp_ms
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int) -> Offset:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        data = build_batch(
            [(self._timestamp_ms, b"key", b"value", ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        return self.log.append(read_batch(data), leader_epoch=Epoch(0))

    def end(self, producer_id: int, *, commit: bool) -> Offset:
        marker = write_marker(
            producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=self._timestamp_ms
        )
        return self.log.append(marker, leader_epoch=Epoch(0))


async def _tell(stage: Stage) -> tuple[History, _Producers]:
    """A at 0, B at 1, A aborts at 2, B commits at 3, A writes at 4 and aborts at 5, B writes at 6."""
    history = await stage.create()
    producers = _Producers(history.log, timestamp_ms=stage.clock.now_ms())
    producers.write(_A)
    producers.write(_B)
    producers.end(_A, commit=False)
    producers.end(_B, commit=True)
    producers.write(_A)
    producers.end(_A, commit=False)
    producers.write(_B)
    await history.wait_durable()
    return history, producers


def _check(log: PartitionLog, *, first: int, end: int, expected: list[tuple[int, int]]) -> None:
    found = [(each.producer_id, each.first_offset) for each in log.aborted(Offset(first), Offset(end))]
    assert found == expected, f"a reader of {first} to {end} is told of {found}, and not of {expected}"


def _check_open(log: PartitionLog, expected: dict[int, int]) -> None:
    found = {key: known.first_offset for key, known in log.producers.open_transactions()}
    assert found == expected, f"open transactions begin at {found}, and not at {expected}"


class TransactionCases(Cases):
    """aborted, and the transactions in `producers`."""

    def test_a_reader_is_told_of_the_aborted_transactions_that_it_meets(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, _ = await _tell(stage)
            _check(history.log, first=0, end=7, expected=[(_A, 0), (_A, 4)])
            _check(history.log, first=1, end=2, expected=[(_A, 0)])
            _check(history.log, first=3, end=4, expected=[])
            _check(history.log, first=5, end=6, expected=[(_A, 4)])
            _check(history.log, first=6, end=7, expected=[])
            _check_open(history.log, {_B: 6})

        self.run(tmp_path, scenario)

    def test_a_truncated_marker_opens_its_transaction_again(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, producers = await _tell(stage)
            await history.log.truncate(Offset(5))
            _check_open(history.log, {_A: 4})
            _check(history.log, first=0, end=5, expected=[(_A, 0)])
            producers.end(_A, commit=True)
            await history.wait_durable()
            _check_open(history.log, {})
            _check(history.log, first=0, end=6, expected=[(_A, 0)])
            await history.log.truncate(Offset(1))
            _check_open(history.log, {_A: 0})
            _check(history.log, first=0, end=1, expected=[])

        self.run(tmp_path, scenario)

    def test_a_trimmed_marker_is_not_told_of(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, _ = await _tell(stage)
            await history.log.trim(Offset(3))
            _check(history.log, first=3, end=7, expected=[(_A, 4)])
            _check_open(history.log, {_B: 6})

        self.run(tmp_path, scenario)

    def test_what_is_not_decided_is_not_final(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, producers = await _tell(stage)
            final = history.log.final_before()
            assert final == 6, f"a transaction is open from 6 on, and everything below {final} is final"
            stage.clock.advance(1_000 * 24 * _HOUR_MS)
            await stage.maintain()
            start = history.log.start_offset
            assert start <= 6, f"retention moved the start to {start}, past an open transaction at 6"
            producers.end(_B, commit=True)
            await history.wait_durable()
            final = history.log.final_before()
            assert final == 8, f"every transaction is decided, and only what is below {final} is final"

        self.run(tmp_path, scenario)


class TransactionReopenCases(Cases):
    """The same of an engine that keeps what it acknowledged."""

    def test_open_and_aborted_transactions_survive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, producers = await _tell(stage)
            await stage.reopen(history)
            _check(history.log, first=0, end=7, expected=[(_A, 0), (_A, 4)])
            _check_open(history.log, {_B: 6})
            producers.log = history.log
            producers.end(_B, commit=False)
            await history.wait_durable()
            await stage.reopen(history)
            _check(history.log, first=0, end=8, expected=[(_A, 0), (_A, 4), (_B, 6)])
            _check_open(history.log, {})

        self.run(tmp_path, scenario)

    def test_a_truncated_marker_stays_undone(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history, _ = await _tell(stage)
            await stage.reopen(history)
            await history.log.truncate(Offset(5))
            await stage.reopen(history)
            _check_open(history.log, {_A: 4})
            _check(history.log, first=0, end=5, expected=[(_A, 0)])

        self.run(tmp_path, scenario)
