"""The state of a table and what a change makes of it: pure, the same for every kind of log.

`plan_change` decides whether a change may be committed on top of a state, and under which names its files
will be found. `State.apply` does what a commit says. A commit that was logged always applies: one that does
not is damage, and log.py says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tailrace.model import TopicPartition
from tailrace.spark.lake.change import Advance, BadRange, Change, Conflict, Snapshot
from tailrace.spark.lake.data_file import DataFile, StagedFile, check_data_file, check_staged_file
from tailrace.spark.lake.layout import DataName, data_path


@dataclass(slots=True, kw_only=True)
class State:
    """Everything that a table's log says, as of `version`."""

    version: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    bad: list[BadRange] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            version=self.version,
            files=tuple(self.files.values()),
            ends=dict(self.ends),
            bad=tuple(self.bad),
            topics=dict(self.topics),
        )

    def copy(self) -> State:
        return State(
            version=self.version,
            files=dict(self.files),
            ends=dict(self.ends),
            bad=list(self.bad),
            topics=dict(self.topics),
        )

    def apply(
        self,
        *,
        add: Iterable[DataFile],
        remove: Iterable[str],
        advances: Sequence[Advance],
        bad: Iterable[BadRange],
        topics: Mapping[str, str],
    ) -> None:
        """Go one version on; Conflict, with nothing changed, if that cannot follow on this state."""
        removed, added = set(remove), list(add)
        _check_removed(self.files, removed)
        ends = _moved(self.ends, advances)
        _check_topics(self.topics, topics)
        for file in added:
            if file.path in self.files and file.path not in removed:
                raise Conflict(f"{file.path} is in the table already")
        for path in removed:
            del self.files[path]
        self.files.update((file.path, file) for file in added)
        self.ends.update(ends)
        self.bad.extend(bad)
        self.topics.update(topics)
        self.version += 1


def plan_change(state: State, change: Change, *, is_taken: Callable[[str], bool]) -> Change:
    """The change as it is to be logged, with a free name for every file; Conflict if it comes too late.

    A name is taken that the table uses, that this change removes (its older readers still want that file), or
    that `is_taken` says something about.
    """
    _check_removed(state.files, {file.path for file in change.remove})
    _moved(state.ends, change.advances)
    _check_topics(state.topics, change.topics)
    if not change.remove:
        _check_covered(change)
    for file in change.remove:
        check_data_file(file)
    named: set[str] = set()
    add = []
    for staged in change.add:
        check_staged_file(staged)
        path = _free_path(staged, lambda path: path in state.files or path in named or is_taken(path))
        named.add(path)
        add.append(replace(staged, file=replace(staged.file, path=path)))
    return replace(change, add=tuple(add))


def _free_path(staged: StagedFile, is_taken: Callable[[str], bool]) -> str:
    file = staged.file
    name = DataName(file.topic, file.day, file.partition, file.first_offset, file.last_offset)
    turn = 0
    while is_taken(data_path(name, turn=turn)):
        turn += 1
    return data_path(name, turn=turn)


def _check_removed(files: dict[str, DataFile], removed: set[str]) -> None:
    for path in removed:
        if path not in files:
            raise Conflict(f"{path} is not in the table any more. Plan again from a new snapshot")


def _check_topics(known: Mapping[str, str], told: Mapping[str, str]) -> None:
    for topic, topic_id in told.items():
        if known.get(topic, topic_id) != topic_id:
            raise Conflict(f"the table has records of another topic that was named {topic}")


def _moved(ends: dict[TopicPartition, int], advances: Sequence[Advance]) -> dict[TopicPartition, int]:
    """Where the partitions end after `advances`; several of one partition follow each other."""
    moved: dict[TopicPartition, int] = {}
    for advance in sorted(advances, key=lambda each: (each.topic, each.partition, each.start)):
        end = moved.get(advance.tp, ends.get(advance.tp))
        if end is not None and advance.start != end:
            raise Conflict(
                f"{advance.tp}: the table ends at offset {end}, this change begins at {advance.start}."
                " Another archive writes the same topic: plan again from a new snapshot"
            )
        if not 0 <= advance.start <= advance.end:
            raise ValueError(f"{advance.tp} cannot go from {advance.start} to {advance.end}")
        moved[advance.tp] = advance.end
    return moved


def _check_covered(change: Change) -> None:
    """New rows must lie in what the change advances over: else a second run would add them again."""
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for advance in change.advances:
        start, end = spans.get(advance.tp, (advance.start, advance.end))
        spans[advance.tp] = min(start, advance.start), max(end, advance.end)
    for staged in change.add:
        start, end = spans.get(staged.file.tp, (0, 0))
        if not start <= staged.file.first_offset <= staged.file.last_offset < end:
            raise ValueError(f"{staged.file.path} is outside of what the change advances over")
