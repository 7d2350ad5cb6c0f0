"""What of a lake is replayed, and by which tasks; decided purely.

A replay is a fixed sequence of rows for each partition of its target:

- `partitions="same"`: the rows of that partition in the lake, in offset order;
- a number: the rows of all partitions in time order (replay_merge.py), those whose key falls there.

How many rows a target partition holds says how far a replay has come, so nothing else is remembered between
runs. Within a run the driver carries a place in the sequence from slice to slice: for each lane, which is a
partition of the lake, the offset to go on from; for each target partition, how many rows come before that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tailrace.model import ConfigError
from tailrace.spark.lake import DataFile, Snapshot

NO_TIME_US = -(1 << 62)
"""Before every timestamp."""

_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows: from `since` on and before `until`, in time and in offset; those of one key, or all."""

    since_us: int | None = None
    until_us: int | None = None
    since_offset: int | None = None
    until_offset: int | None = None
    key: bytes | None = None

    @property
    def looks_inside(self) -> bool:
        """Whether a row must be read to know that it is selected."""
        return self.since_us is not None or self.until_us is not None or self.key is not None

    def may_have(self, file: DataFile) -> bool:
        """Whether any row of a file can be selected, as far as its name and its statistics say."""
        return (
            (self.since_us is None or file.max_timestamp_us >= self.since_us)
            and (self.until_us is None or file.min_timestamp_us < self.until_us)
            and (self.since_offset is None or file.last_offset >= self.since_offset)
            and (self.until_offset is None or file.first_offset < self.until_offset)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What is left of one partition of the lake."""

    partition: int
    files: tuple[DataFile, ...]
    start: int = 0
    """The first offset that was not looked at yet."""
    floor_us: int = NO_TIME_US
    """The greatest timestamp before that: a row is never due before those that it comes after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A moment on the clock, and the timestamp that is due then."""

    wall_s: float
    event_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task does, for so many seconds at most; travels to a worker pickled."""

    bootstrap: str
    root: str
    topic: str
    """The target."""
    from_topic: str = ""
    """Where the rows were written once."""
    selection: Selection
    lanes: tuple[Lane, ...]
    counts: Mapping[int, int]
    """For each target partition, the rows of its sequence before the lanes' starts."""
    fan: int | None = None
    """Into how many partitions rows go by key; None: each into the partition it came from."""
    speed: float | None = None
    epoch: Epoch | None = None
    seconds_max: float

    @property
    def merges(self) -> bool:
        """Whether the lanes go side by side, in time order, or one after the other."""
        return self.fan is not None or self.speed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAt:
    """How far a task came with a lane."""

    partition: int
    start: int
    floor_us: int
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDone:
    """How far a task came; travels back as JSON."""

    lanes: list[LaneAt]
    counts: dict[int, int]
    sent: dict[int, int]
    skipped: dict[int, int]
    epoch: Epoch | None


# ---- from what a person wrote


def plan_selection(
    *,
    since: str | None,
    until: str | None,
    since_offset: int | None,
    until_offset: int | None,
    key: str | None,
) -> Selection:
    """The selection, or a ConfigError that names the option."""
    for name, offset in (("since_offset", since_offset), ("until_offset", until_offset)):
        if offset is not None and offset < 0:
            raise ConfigError(f"replay: {name} = {offset} is no offset. Offsets begin at 0")
    selection = Selection(
        since_us=None if since is None else parse_time_us("since", since),
        until_us=None if until is None else parse_time_us("until", until),
        since_offset=since_offset,
        until_offset=until_offset,
        key=None if key is None else key.encode(),
    )
    _check_order("since", selection.since_us, selection.until_us)
    _check_order("since_offset", selection.since_offset, selection.until_offset)
    return selection


def _check_order(name: str, first: int | None, end: int | None) -> None:
    if first is not None and end is not None and first >= end:
        other = name.replace("since", "until")
        raise ConfigError(
            f"replay: {name} is not before {other}, so there is nothing between them. Swap them?"
        )


def parse_time_us(name: str, text: str) -> int:
    """Microseconds since 1970 of a time as ISO 8601 writes it; one without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"replay: {name} = {text!r} is no time. Write it as 2026-11-16T09:00 (UTC), or with a zone:"
            " 2026-11-16T09:00+01:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since_1970 = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_1970.days * 86_400 + since_1970.seconds) * 1_000_000 + since_1970.microseconds


def parse_speed(text: str) -> float | None:
    """How many times faster than the records came; None is as fast as it goes."""
    if text.strip().lower() == "max":
        return None
    found = _SPEED.fullmatch(text.strip().lower())
    if found is None or not float(found[1]) > 0:
        raise ConfigError(f"replay: speed = {text!r} is no speed. Write max, 1x or 10x")
    return float(found[1])


def parse_partitions(value: int | str) -> int | None:
    """How many partitions rows go to by key; None is into those they came from."""
    text = str(value).strip().lower()
    if text == "same":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"replay: partitions = {value!r} is neither `same` nor a number from 1 on")
    return int(text)


# ---- from the lake


def count_partitions(snapshot: Snapshot, topic: str) -> int:
    """How many partitions a topic had, as far as the lake knows; 0 for a topic that is not in it."""
    known = {each.partition for each in snapshot.ends if each.topic == topic}
    known |= {file.partition for file in snapshot.files if file.topic == topic}
    return max(known, default=-1) + 1


def plan_lanes(snapshot: Snapshot, topic: str, selection: Selection) -> list[Lane]:
    """A lane for each partition that may have rows to give."""
    files: dict[int, list[DataFile]] = {}
    for file in snapshot.files:
        if file.topic == topic and selection.may_have(file):
            files.setdefault(file.partition, []).append(file)
    return [
        Lane(
            partition=partition,
            files=tuple(sorted(files[partition], key=lambda file: (file.first_offset, file.path))),
            start=selection.since_offset or 0,
        )
        for partition in sorted(files)
    ]


def plan_skip(lane: Lane, selection: Selection, there: int) -> tuple[Lane, int]:
    """The lane without the files whose rows are all in the target already, and how many rows those have.

    The last row that is there stays, to be compared. Where a row must be read to know that it counts, or
    files overlap, nothing can be left out.
    """
    if selection.looks_inside:
        return lane, 0
    passed = 0
    for at, file in enumerate(lane.files):
        rest = lane.files[at + 1 :]
        whole = file.first_offset >= lane.start and (
            selection.until_offset is None or file.last_offset < selection.until_offset
        )
        apart = all(other.first_offset > file.last_offset for other in rest)
        if not whole or not apart or passed + file.rows >= there:
            return replace(lane, files=lane.files[at:]), passed
        passed += file.rows
        lane = replace(lane, start=file.last_offset + 1)
        # `files` is cut when the loop ends: `at` counts in the lane's own list.
    return replace(lane, files=()), passed


def count_rows(lanes: Sequence[Lane], selection: Selection) -> int | None:
    """How many rows the lanes give; None if only reading them tells."""
    if selection.looks_inside or selection.since_offset is not None or selection.until_offset is not None:
        return None
    return sum(file.rows for lane in lanes for file in lane.files)


# ---- to tasks, and back


def plan_shares(whole: Share, *, tasks: int) -> list[Share]:
    """A share for each task. Lanes to be merged stay in one; others are dealt out, the longest first."""
    if whole.merges or tasks <= 1:
        return [whole] if whole.lanes else []
    dealt: list[list[Lane]] = [[] for _ in range(min(tasks, len(whole.lanes)))]
    weights = [0] * len(dealt)
    for lane in sorted(whole.lanes, key=lambda lane: (-_rows_left(lane), lane.partition)):
        at = weights.index(min(weights))
        dealt[at].append(lane)
        weights[at] += _rows_left(lane)
    return [
        replace(
            whole, lanes=tuple(lanes), counts={each.partition: whole.counts[each.partition] for each in lanes}
        )
        for lanes in dealt
    ]


def _rows_left(lane: Lane) -> int:
    return sum(file.rows for file in lane.files if file.last_offset >= lane.start)


def plan_rest(whole: Share, done: Sequence[ShareDone]) -> Share:
    """What is left after the tasks of a slice."""
    reached = {each.partition: each for share in done for each in share.lanes}
    counts = dict(whole.counts)
    for share in done:
        counts.update(share.counts)
    lanes = tuple(_lane_rest(lane, reached[lane.partition]) for lane in whole.lanes)
    epoch = next((share.epoch for share in done if share.epoch is not None), whole.epoch)
    return replace(whole, lanes=tuple(lane for lane in lanes if lane is not None), counts=counts, epoch=epoch)


def _lane_rest(lane: Lane, at: LaneAt) -> Lane | None:
    if at.is_done:
        return None
    files = tuple(file for file in lane.files if file.last_offset >= at.start)
    return replace(lane, files=files, start=at.start, floor_us=at.floor_us)
