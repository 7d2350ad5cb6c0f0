"""The manifest against a dict: random changes, conflicts, reopenings, deaths at any step, many times over."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.model import TopicPartition
from tailrace.spark.lake import Advance, BadRange, Change, Conflict, DataFile, StagedFile, Staging
from tailrace.spark.lake.current import read_current
from tailrace.spark.lake.layout import DataName, data_path
from tailrace.spark.lake.manifest import ManifestTable
from tailrace.spark.lake.marker import make_lake
from tailrace.spark.lake.scanning import find_file
from tailrace.spark.lake.staging import staged_name

STEPS = ["staged", "written", "logged", "removed", "placed", "moved", "linked", "listed"]
DEATHS = st.none() | st.tuples(st.sampled_from(STEPS), st.integers(1, 3))
TOPICS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]


class Killed(BaseException):
    """Stands for the end of the process."""


class Lakes(RuleBasedStateMachine):
    """Files hold their own range as text, which is all that the manifest needs of them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="lake-"))
        make_lake(self.root, "parquet")
        self.table = self.open()
        self.ends: dict[TopicPartition, int] = {}
        self.rows: dict[TopicPartition, list[tuple[int, int]]] = {}  # ranges that are in the table
        self.bad: list[BadRange] = []
        self.older: list[Sequence[DataFile]] = []
        self.versions: list[set[str]] = [set()]  # the files of every commit

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def open(self) -> ManifestTable:
        return ManifestTable(self.root, checkpoint_every=4)

    def stage(self, staging: str, tp: TopicPartition, first: int, last: int) -> StagedFile:
        name = DataName(tp.topic, "2026-11-16", tp.partition, first, last)
        data = f"{first}-{last}".encode()
        staged = staged_name(staging)
        (self.root / staged).write_bytes(data)
        file = DataFile(
            path=data_path(name),
            topic=tp.topic,
            partition=tp.partition,
            day=name.day,
            first_offset=first,
            last_offset=last,
            rows=1,
            bytes=len(data),
            min_timestamp_us=0,
            max_timestamp_us=0,
        )
        return StagedFile(file=file, staged=staged)

    def commit(self, change: Change, death: tuple[str, int] | None) -> bool:
        """Whether the change was logged, by the one who knows: whether "logged" was reached."""
        reached: list[str] = []

        def on_step(step: str) -> None:
            reached.append(step)
            if death and (step, reached.count(step)) == death:
                raise Killed

        try:
            self.table.commit(change, on_step=on_step)
        except Killed:
            self.table = self.open()
        if "logged" in reached:
            self.versions.append({file.path for file in self.table.snapshot().files})
        if "listed" in reached:
            assert set(read_current(self.root) or ()) == self.versions[-1]
        return "logged" in reached

    @rule(tp=st.sampled_from(TOPICS), parts=st.lists(st.integers(1, 5), max_size=3), death=DEATHS)
    def archive(self, tp: TopicPartition, parts: list[int], death: tuple[str, int] | None) -> None:
        start = self.ends.get(tp, 0)
        ranges, at = [], start
        for length in parts:
            ranges.append((at, at + length - 1))
            at += length
        with Staging(self.root) as staging:
            change = Change(
                operation="archive",
                add=[self.stage(staging.path, tp, *each) for each in ranges],
                advances=[Advance(topic=tp.topic, partition=tp.partition, start=start, end=at)],
            )
            logged = self.commit(change, death)
        if logged:
            self.ends[tp] = at
            self.rows.setdefault(tp, []).extend(ranges)

    @rule(tp=st.sampled_from(TOPICS), death=DEATHS)
    def note_bad(self, tp: TopicPartition, death: tuple[str, int] | None) -> None:
        bad = BadRange(
            topic=tp.topic, partition=tp.partition, first_offset=1, last_offset=2, reason=str(len(self.bad))
        )
        if self.commit(Change(operation="archive", bad=[bad]), death):
            self.bad.append(bad)

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data(), death=DEATHS, keeps=st.booleans())
    def compact(self, data: st.DataObject, death: tuple[str, int] | None, keeps: bool) -> None:
        tp = data.draw(st.sampled_from([tp for tp, rows in self.rows.items() if rows]))
        files = [file for file in self.table.snapshot().files if file.tp == tp]
        chosen = data.draw(st.lists(st.sampled_from(files), min_size=1, unique_by=lambda file: file.path))
        hull = min(file.first_offset for file in chosen), max(file.last_offset for file in chosen)
        self.older.append(files)
        with Staging(self.root) as staging:
            add = [self.stage(staging.path, tp, *hull)] if keeps else []
            logged = self.commit(Change(operation="compact", add=add, remove=chosen), death)
        if logged:
            for file in chosen:
                self.rows[tp].remove((file.first_offset, file.last_offset))
            self.rows[tp] += [hull] if keeps else []

    @precondition(lambda self: self.ends)
    @rule(data=st.data(), off=st.sampled_from([-1, 1, 5]))
    def archive_too_late(self, data: st.DataObject, off: int) -> None:
        tp = data.draw(st.sampled_from(sorted(self.ends)))
        start = max(self.ends[tp] + off, 0)
        if start == self.ends[tp]:
            return
        advance = Advance(topic=tp.topic, partition=tp.partition, start=start, end=start + 1)
        with pytest.raises(Conflict):
            self.table.commit(Change(operation="archive", advances=[advance]))

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data())
    def remove_what_is_gone(self, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(self.table.snapshot().files))
        gone = replace(file, path=file.path.replace(".parquet", "-77.parquet"))
        with pytest.raises(Conflict):
            self.table.commit(Change(operation="compact", remove=[gone]))

    @rule()
    def reopen(self) -> None:
        self.table = self.open()

    @rule()
    def recover(self) -> None:
        self.table.recover()
        visible = {path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet")}
        assert visible == {file.path for file in self.table.snapshot().files}
        assert not list(self.root.rglob("*.staged"))

    @rule()
    def expire(self) -> None:
        self.table.expire(older_than_h=0)
        self.older.clear()

    @invariant()
    def the_table_is_the_dict(self) -> None:
        snapshot = self.open().snapshot()
        assert snapshot == self.table.snapshot()
        assert snapshot.ends == self.ends
        assert list(snapshot.bad) == self.bad
        found: dict[TopicPartition, list[tuple[int, int]]] = {}
        for file in snapshot.files:
            found.setdefault(file.tp, []).append((file.first_offset, file.last_offset))
        assert {tp: sorted(rows) for tp, rows in found.items()} == {
            tp: sorted(rows) for tp, rows in self.rows.items() if rows
        }

    @invariant()
    def every_file_is_found_wherever_it_lies(self) -> None:
        for files in [self.table.snapshot().files, *self.older]:
            for file in files:
                text = find_file(self.root, file).read_text()
                assert text == f"{file.first_offset}-{file.last_offset}"

    @invariant()
    def the_list_for_plain_readers_is_one_version_and_every_line_opens(self) -> None:
        listed = read_current(self.root)
        if listed is None:
            return
        assert set(listed) in self.versions
        for line in (self.root / "_manifest/current.txt").read_text().splitlines():
            first, last = (int(part) for part in (self.root / line).read_text().split("-"))
            assert f"-{first:020d}-{last:020d}" in line

    @invariant()
    def nothing_uncommitted_is_visible(self) -> None:
        visible = {path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet")}
        known = {file.path for files in [self.table.snapshot().files, *self.older] for file in files}
        assert visible <= known


Lakes.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestLakes = Lakes.TestCase
