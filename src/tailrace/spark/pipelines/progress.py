"""How far a pipeline has come: what it tells after every batch, and how fast it is.

A pipeline keeps one `Pace` for a run, adds the rows of each batch to it, and hands a `Progress` to whatever
observes the run: the live line, the heartbeat, a test. Observers are called in the pipeline's own thread and
must be quick. A rate is measured over the last seconds, not since the start: a person wants to know how fast
it is now, and an ETA made of an old rate is wrong for as long as the run was different before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from tailrace.spark.lake.missing import MissingRange

_WINDOW_S = 10.0
_MARKS_MAX = 1_000
_SPAN_S_MIN = 0.05
_MISSING_TOLD_MAX = 100
_ETA_S_MAX = 365 * 24 * 3600.0  # beyond a year a number says no more than "very long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a run."""

    pipeline: str  # archive, replay, ...: what runs, not its name
    batch: int  # how many batches are done
    rows: int  # in this run so far
    rows_per_s: float
    lag: int | None  # records that wait to be read; None where it is not known
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)  # topic, partition: next offset
    bytes: int = 0  # written in this run so far
    watermark: str | None = None  # of event time, where a query has one
    eta_s: float | None = None  # until lag is 0 at this rate
    note: str = ""  # a few words that only this pipeline has
    notice: str = ""  # what a user should read, told once and on a line of its own
    missing: Sequence[MissingRange] = ()  # what the lake lacks of these topics, since whenever


Observer = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """The observer of a run without one."""


def progress_fields(progress: Progress) -> dict[str, object]:
    """As JSON has it: partitions are text there.

    A run tells this every few seconds: it names a bounded number of missing ranges, and counts all of them.
    """
    fields = asdict(progress)
    fields["missing"] = [asdict(each) for each in progress.missing[:_MISSING_TOLD_MAX]]
    fields["missing_offsets"] = _missing_offsets(progress.missing)
    fields["offsets"] = {
        topic: {str(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in progress.offsets.items()
    }
    fields["rows_per_s"] = round(progress.rows_per_s, 1)
    fields["eta_s"] = None if progress.eta_s is None else round(progress.eta_s, 1)
    return fields


def _missing_offsets(missing: Sequence[MissingRange]) -> dict[str, dict[str, int]]:
    """How many offsets are missing, by topic and partition."""
    counts: dict[str, dict[str, int]] = {}
    for each in missing:
        partitions = counts.setdefault(each.topic, {})
        number = str(each.partition)
        partitions[number] = partitions.get(number, 0) + each.count
    return counts


class Pace:
    """Counts the rows of a run, and knows how many there were in each of the last seconds."""

    def __init__(self, *, window_s: float = _WINDOW_S, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._window_s = window_s
        self._marks: deque[tuple[float, int]] = deque(
            [(now(), 0)], maxlen=_MARKS_MAX
        )  # when, rows until then
        self.rows = 0

    def add(self, rows: int) -> None:
        """Some more rows are done."""
        self.rows += rows
        now = self._now()
        self._marks.append((now, self.rows))
        # One mark before the window stays: without it a batch longer than the window would have no rate.
        while len(self._marks) > 2 and self._marks[1][0] <= now - self._window_s:
            self._marks.popleft()

    @property
    def rows_per_s(self) -> float:
        """Over the last seconds, until now: it sinks while nothing comes."""
        began, rows = self._marks[0]
        return (self.rows - rows) / max(self._now() - began, _SPAN_S_MIN)

    def eta_s(self, left: int | None) -> float | None:
        """How long `left` more rows take at this rate; None if that cannot be told."""
        rate = self.rows_per_s
        if left is None or rate <= 0:
            return None
        eta_s = max(left, 0) / rate
        return eta_s if eta_s <= _ETA_S_MAX else None
