"""The histories of a partition in the journal, without files."""

from __future__ import annotations

from tailrace.model import Epoch, Offset
from tailrace.records import build_batch, read_batch
from tailrace.storage.segment.entry import Append, Entry, Trim, Truncate
from tailrace.storage.segment.lineage import Comparison, Disagreement, read_histories, without_passed

SIZE = read_batch(build_batch([(0, b"k", b"value 0", ())])).size


def append(offset: int, value: int, *, segment: int = 0, position: int | None = None) -> Append:
    """One record; by default every batch before it in the segment is as long as it is."""
    batch = read_batch(build_batch([(value, b"k", b"value %d" % value, ())]))
    batch.assign(Offset(offset), Epoch(0))
    place = (offset - segment) * SIZE if position is None else position
    return Append(1, batch, segment, place)


def cut(offset: int, *, segment: int = 0, position: int | None = None) -> Truncate:
    return Truncate(1, Offset(offset), segment, (offset - segment) * SIZE if position is None else position)


def test_a_truncation_ends_a_history_and_the_next_one_keeps_what_lies_below() -> None:
    kept, undone, new = append(0, 0), append(1, 1), append(1, 2)
    older, newer = read_histories([kept, undone, cut(1), new])
    assert list(older.appends) == [kept, undone]
    assert list(newer.appends) == [kept, new]


def test_only_what_follows_on_a_segment_of_a_history_is_replayed() -> None:
    trim = Trim(1, Offset(2))
    entries: list[Entry] = [append(0, 0), append(1, 1), trim, cut(1), append(1, 2), append(2, 3, segment=2)]
    newer = read_histories(entries)[-1]
    assert newer.entries_behind(0) == [Trim(1, Offset(1)), entries[-1]]  # a truncation takes trims back


def test_later_truncations_and_what_follows_them_are_replayed() -> None:
    entries: list[Entry] = [append(0, 0), append(1, 1, segment=1), cut(1, segment=1), append(1, 2, segment=1)]
    older = read_histories(entries)[0]
    assert older.entries_behind(1) == entries[2:]


def test_a_position_that_the_entries_do_not_lead_to_tells_of_compaction() -> None:
    assert read_histories([append(0, 0), append(1, 1), append(2, 2), cut(2)])[0].compacted_segment() == -1
    compacted = cut(2, position=SIZE)
    assert read_histories([append(0, 0), append(1, 1), append(2, 2), compacted])[0].compacted_segment() == 0


def test_what_a_recovery_that_lost_batches_had_passed_is_left_out() -> None:
    entries: list[Entry] = [append(0, 0), Trim(1, Offset(3)), append(3, 1), append(2, 2), append(3, 3)]
    assert without_passed(entries) == [Trim(1, Offset(2)), *entries[3:]]


def test_batches_tell_which_history_a_file_is_of() -> None:
    old, new = append(1, 1), append(1, 2)
    entries: list[Entry] = [append(0, 0), old, cut(1), new]
    for own, other in ((old, new), (new, old)):
        history = next(each for each in read_histories(entries) if own in each.appends)
        compared = Comparison(0, history)
        compared.see(own.batch, own.position)
        assert (compared.is_own, compared.is_foreign, compared.moved) == (True, False, False)
        compared.see(other.batch, other.position)
        assert compared.is_foreign


def test_a_batch_that_both_histories_have_tells_nothing() -> None:
    entries: list[Entry] = [append(0, 0), append(1, 1), cut(1), append(1, 1)]
    compared = Comparison(0, read_histories(entries)[-1])
    compared.see(append(1, 1).batch, SIZE)
    assert not compared.is_own
    assert not compared.is_foreign


def test_a_batch_that_was_moved_must_not_be_written_over() -> None:
    entries: list[Entry] = [append(0, 0), append(1, 1)]
    found = Disagreement(0, entries, entries)
    found.see(append(0, 0).batch, 0)
    assert not found.found
    found.see(append(1, 1).batch, 0)
    assert found.found
