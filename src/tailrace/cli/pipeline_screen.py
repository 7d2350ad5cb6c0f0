"""What `tailrace pipeline run` shows while it runs, and what was reached at the end.

On a terminal one line on stderr lives: a spinner while Spark starts, then batch, rows, rate, lag, watermark
and time left of each run. Without one there are plain lines, a few seconds apart. With `-o jsonl` every
progress is an object on stdout as well, a run that failed while others go on is one with `state` and `error`,
and the last object has `done`.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from tailrace.cli.output import Column, Output
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.spark.lake import BadRange
    from tailrace.spark.lake.missing import MissingRange
    from tailrace.spark.pipelines.progress import Progress
    from tailrace.spark.pipelines.runner import Outcome, Run

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TICK_S = 0.2
_LINE_EVERY_S = 5.0
_MISSING_SHOWN_MAX = 20


class RunScreen:
    """Shows some runs. `tell`, `watch` and `ended` may be called from any thread."""

    def __init__(self, output: Output, *, stream: TextIO | None = None) -> None:
        self._output = output
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._lock = threading.Lock()
        self._said = ""  # what is happening, until the first progress
        self._said_at = 0.0
        self._lines: dict[str, str] = {}  # by run
        self._printed_at: dict[str, float] = {}
        self._closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="live line", daemon=True)
        if self._live:
            self._ticker.start()

    def tell(self, text: str) -> None:
        """Something begins that may take a while."""
        with self._lock:
            self._said, self._said_at = text, time.monotonic()
            self._lines.clear()
            if not self._live:
                self._print(text)

    def watch(self, run: Run, progress: Progress) -> None:
        """A run has come further."""
        text = f"{run.declared.name}  {progress_text(progress)}"
        with self._lock:
            self._lines[run.record.id] = text
            if self._output.format == "jsonl":
                self._print_object(run, progress)
            if progress.notice:
                self._print_over(f"{run.declared.name}: {progress.notice}")
                return
            now = time.monotonic()
            if not self._live and now - self._printed_at.get(run.record.id, -_LINE_EVERY_S) >= _LINE_EVERY_S:
                self._printed_at[run.record.id] = now
                self._print(text)

    def ended(self, outcome: Outcome) -> None:
        """One of several runs is over: if it failed, that is not to wait for the end of the others."""
        if outcome.state != "failed":
            return
        with self._lock:
            self._lines[outcome.id] = f"{outcome.name}  failed"
            self._print_over(f"{outcome.name} failed: {outcome.reason}")
            if self._output.format == "jsonl":
                self._output.rows([outcome_fields(outcome)], columns=())
                sys.stdout.flush()

    def give_way(self) -> None:
        """Others write to the terminal from now on, and a line that lives would be in their way."""
        self._closed.set()
        if self._ticker.is_alive():
            self._ticker.join()
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self.give_way()

    def _tick(self) -> None:
        turn = 0
        while not self._closed.wait(_TICK_S):
            turn += 1
            width = shutil.get_terminal_size().columns
            with self._lock:
                text = " | ".join(self._lines.values()) or self._spun(turn)
                self._stream.write(f"\r{escape(text)[: width - 1]}\x1b[K")
                self._stream.flush()

    def _spun(self, turn: int) -> str:
        if not self._said:
            return ""
        seconds = time.monotonic() - self._said_at
        return f"{_SPINNER[turn % len(_SPINNER)]} {self._said} {seconds:.0f} s"

    def _print_over(self, text: str) -> None:
        """A line that stays, in the place of the one that lives."""
        if self._live:
            self._stream.write("\r\x1b[K")
        self._print(text)

    def _print(self, text: str) -> None:
        print(escape(text), file=self._stream, flush=True)

    def _print_object(self, run: Run, progress: Progress) -> None:
        from tailrace.spark.pipelines.progress import progress_fields

        row = {"id": run.record.id, "name": run.declared.name, **progress_fields(progress)}
        self._output.rows([row], columns=())
        sys.stdout.flush()


def progress_text(progress: Progress) -> str:
    """One look at a run, in a line."""
    parts = [
        f"batch {progress.batch:,}",
        f"{progress.rows:,} rows",
        f"{progress.rows_per_s:,.0f} rows/s",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.watermark:
        parts.append(f"watermark {progress.watermark}")
    if progress.eta_s is not None and progress.lag:
        parts.append(f"ETA {duration_text(progress.eta_s)}")
    if progress.missing:
        parts.append(f"missing {sum(each.count for each in progress.missing):,}")
    if progress.note:
        parts.append(progress.note)
    return "  ".join(parts)


def duration_text(seconds: float) -> str:
    """As people say it: 9 s, 2 m 10 s, 3 h 5 m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} m"


# ---- the end


def show_outcomes(outcomes: Sequence[Outcome], output: Output) -> None:
    """What the runs reached, on stdout."""
    rows = [outcome_fields(outcome) for outcome in outcomes]
    if output.format == "json":
        output.record(rows[0] if len(rows) == 1 else {"runs": rows})
    elif output.format == "jsonl":
        last = {"done": True, "runs": rows}
        output.rows([last], columns=())
    else:
        for outcome, row in zip(outcomes, rows, strict=True):
            _show_table(outcome, row, output)


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """As JSON has it."""
    import msgspec

    from tailrace.spark.pipelines.progress import progress_fields

    result = msgspec.to_builtins(outcome.result, str_keys=True, enc_hook=str)
    return {
        "id": outcome.id,
        "name": outcome.name,
        "pipeline": outcome.pipeline,
        "state": outcome.state,
        "seconds": round(outcome.seconds, 3),
        "error": outcome.reason,
        "retriable": outcome.may_pass,
        "result": result,
        "progress": None if outcome.progress is None else progress_fields(outcome.progress),
    }


def _show_table(outcome: Outcome, row: dict[str, Any], output: Output) -> None:
    if outcome.state == "failed":
        print(escape(f"{outcome.name} failed: {outcome.reason}"))
        return
    result = row["result"] if isinstance(row["result"], dict) else {}
    print(f"{outcome.name} {outcome.state} after {duration_text(outcome.seconds)}")
    facts = {key: value for key, value in result.items() if _is_fact(key, value)}
    if facts:
        output.record(facts, columns=[Column(key, key.replace("_", " "), show=_figure) for key in facts])
    offsets = result.get("offsets") or (row["progress"] or {}).get("offsets") or {}
    ends = [
        {"partition": f"{topic}-{partition}", "end": end}
        for topic, partitions in offsets.items()
        for partition, end in partitions.items()
    ]
    if ends:
        print()
        output.rows(
            ends, columns=[Column("partition"), Column("end", "end offset", show=_figure, right=True)]
        )
    for bad in getattr(outcome.result, "bad", ()):
        _show_bad(bad)
    _show_missing(getattr(outcome.result, "missing", ()))


def _is_fact(key: str, value: object) -> bool:
    return (
        key not in ("seconds", "stopped", "is_complete")
        and isinstance(value, str | int | float)
        and value != ""
    )


def _show_bad(bad: BadRange) -> None:
    from tailrace.spark.lake.missing import GONE

    if bad.reason != GONE:  # that is among what the lake misses
        where = f"{bad.topic}-{bad.partition} {bad.first_offset} to {bad.last_offset}"
        saved = f", kept in {bad.saved}" if bad.saved else ""
        print(escape(f"set aside: {where}: {bad.reason}{saved}"))


def _show_missing(missing: Sequence[MissingRange]) -> None:
    for each in missing[:_MISSING_SHOWN_MAX]:
        print(escape(f"missing: {each}: deleted from the topic before it was archived"))
    if len(missing) > _MISSING_SHOWN_MAX:
        print(f"missing: {len(missing) - _MISSING_SHOWN_MAX:,} more ranges; -o json has all of them")


def _figure(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.1f}"
        if isinstance(value, float)
        else str(value)
    )
