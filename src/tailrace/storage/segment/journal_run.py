"""The run of rounds in a journal that is all there is to replay, found without a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.model import PartitionId
from tailrace.storage.segment.entry import Create, Delete, Entry
from tailrace.storage.segment.journal import Round, holds_no_round, read_header, read_rounds
from tailrace.storage.segment.names import journal_file
from tailrace.storage.segment.plan import damage, entries_of

CHECKPOINT_TOO = "Nothing was changed. The checkpoint is lost as well: restore the directory from a backup"


def find_run(
    files: Mapping[int, memoryview],
) -> tuple[tuple[int, ...], int, list[Round], int]:
    """Journal files in use, the LSN before the run of rounds that counts, the run, and the newest LSN.

    The run goes down from the newest round that is proved to be synced as far as the journal reaches, and up
    from it to the torn tail. Where it would begin behind a hole in a file, the round in the hole was damaged
    if a later one names it as synced. Else a crash tore it: the recovery after that passed every round of the
    file, whole ones behind the hole too, which were promised to nobody.
    """
    found: dict[int, Round] = {}
    reaches: list[tuple[int, list[Round]]] = []  # first LSN and rounds of every file
    numbers: list[int] = []
    proved = newest = 0
    for number, data in files.items():
        header = read_header(data)
        if header is None:
            if holds_no_round(data):
                continue  # made for a checkpoint that never was
            raise damage(
                journal_file(number), "the header of the journal file is unreadable", hint=CHECKPOINT_TOO
            )
        numbers.append(number)
        rounds = list(read_rounds(data, header))
        found.update({each.lsn: each for each in rounds})
        reaches.append((header.first_lsn, rounds))
        proved = max([proved, header.first_lsn - 1, *(each.synced_lsn for each in rounds)])
        newest = max([newest, *(each.lsn for each in rounds)])
    floor = proved
    while floor in found:
        floor -= 1
    for first, rounds in reaches:
        behind = [each for each in rounds if each.lsn > floor]
        if behind and 0 < first <= floor:
            if any(each.synced_lsn >= floor for each in behind):
                raise damage("journal", f"round {floor} is unreadable", hint=CHECKPOINT_TOO)
            floor = max(each.lsn for each in behind)
    run: list[Round] = []
    while (following := found.get(floor + len(run) + 1)) is not None:
        run.append(following)
    return tuple(sorted(numbers)), floor, run, max(newest, proved)


def sort_entries(
    rounds: Sequence[Round],
) -> tuple[dict[int, PartitionId], set[int], dict[int, list[Entry]]]:
    """Lives that the rounds create, those that they delete, and the other entries of every life."""
    created: dict[int, PartitionId] = {}
    deleted: set[int] = set()
    entries: dict[int, list[Entry]] = {}
    for each in rounds:
        for entry in entries_of(each):
            if isinstance(entry, Create):
                created[entry.life] = entry.partition_id
            elif isinstance(entry, Delete):
                deleted.add(entry.life)
            else:
                entries.setdefault(entry.life, []).append(entry)
    return created, deleted, entries
