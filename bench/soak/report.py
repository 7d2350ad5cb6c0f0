"""What a soak found. The keys of its JSON are read by scripts, so they stay.

{
  "began", "minutes", "took_s", "interrupted", "machine": {...}, "settings": {...},
  "capacity": {...}, "target": {...},         requests/s of each kind, and what the calibration cost
  "ready_s", "span_s",                        until the broker served; the seconds that were sampled
  "visits": {"groups", "connections", "topics"},
  "samples": {column: [one value a second]},  "windows": {column: [one value a window]},
  "ledger": [{"partition", "acknowledged", "read_to", "log_start", "log_end"}],
  "verdicts": [{"name", "title", "unit", "second", "last", "slope_per_hour", "course", "passed"}],
  "failures": [text]
}

Columns of samples: at_s, rss_mb, descriptors, threads, cpu (cores), disk_mb, log_start, log_end (records, of
all partitions together), records_per_s, mb_per_s, fetches_per_s, fetched_mb_per_s, generator_cpu, and p50 and
p99 of the acknowledgements of either kind of producer. Columns of windows: at_s, lag_p50_ms, lag_p99_ms,
lag_max_ms, pss_mb, anonymous_mb. A value is null where there was none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from bench.soak.trend import Figure, Verdict, judge, quarter
from bench.table import figure as number_text
from bench.table import markdown

Row = dict[str, object]
Columns = dict[str, list[float | None]]

SAMPLED = (
    Figure(name="rss_mb", title="resident memory", unit="MB", noise=8.0),
    Figure(name="descriptors", title="open descriptors", unit="", noise=5.0),
    Figure(name="threads", title="threads", unit="", noise=2.0),
    Figure(name="cpu", title="processor", unit="cores", noise=0.05),
    Figure(name="disk_mb", title="data directory", unit="MB", noise=32.0),  # a segment of each partition
    Figure(name="records_per_s", title="load achieved", unit="records/s", noise=0.0, more_is_better=True),
)
WINDOWED = (
    Figure(name="anonymous_mb", title="anonymous memory", unit="MB", noise=8.0),
    Figure(name="lag_p50_ms", title="event-loop lag, p50", unit="ms", noise=1.0),
    Figure(name="lag_p99_ms", title="event-loop lag, p99", unit="ms", noise=1.0),
)
ACHIEVED_MIN = 0.95  # of the target, in the mean after the warm-up


@dataclass(slots=True, kw_only=True)
class Report:
    """Grows while the soak goes on."""

    began: str
    minutes: float
    machine: Row
    settings: Row
    took_s: float = 0.0
    ready_s: float = 0.0
    span_s: float = 0.0
    interrupted: bool = False
    capacity: Row = field(default_factory=dict)
    target: Row = field(default_factory=dict)
    visits: Row = field(default_factory=dict)
    samples: Columns = field(default_factory=dict)
    windows: Columns = field(default_factory=dict)
    ledger: list[dict[str, int]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures and all(verdict.passed for verdict in self.verdicts)

    def add_sample(self, row: Mapping[str, float | None]) -> None:
        add_row(self.samples, row)

    def add_window(self, row: Mapping[str, float | None]) -> None:
        add_row(self.windows, row)

    def conclude(self) -> None:
        """The verdicts, and what the ledger and the target say."""
        self.verdicts = [
            _judge(each, columns, self.span_s)
            for figures, columns in ((SAMPLED, self.samples), (WINDOWED, self.windows))
            for each in figures
            if any(value is not None for value in columns.get(each.name, ()))
        ]
        self.failures += ledger_failures(self.ledger) + self._target_failures()

    def _target_failures(self) -> list[str]:
        wanted = self.target.get("records_per_s")
        achieved = mean_after_warm_up(self.samples, "records_per_s", self.span_s)
        if not isinstance(wanted, float) or achieved is None or achieved >= wanted * ACHIEVED_MIN:
            return []
        return [f"{achieved:,.0f} records/s of {wanted:,.0f}: the broker did not keep up with the load"]


def add_row(columns: Columns, row: Mapping[str, float | None]) -> None:
    """One value to every column; all rows have the same ones."""
    assert not columns or columns.keys() == row.keys()
    for name, value in row.items():
        columns.setdefault(name, []).append(None if value is None else round(value, 3))


def series(columns: Columns, name: str) -> tuple[list[float], list[float]]:
    """(times, values) of a column, without what was not measured."""
    if name not in columns:
        return [], []
    pairs = [
        (at, value)
        for at, value in zip(columns["at_s"], columns[name], strict=True)
        if at is not None and value is not None
    ]
    return [at for at, _ in pairs], [value for _, value in pairs]


def mean_after_warm_up(columns: Columns, name: str, span_s: float) -> float | None:
    """Of the last three quarters."""
    times_s, values = series(columns, name)
    seen = [value for at, value in zip(times_s, values, strict=True) if quarter(at, span_s) > 0]
    return sum(seen) / len(seen) if seen else None


def ledger_failures(ledger: list[dict[str, int]]) -> list[str]:
    """Every partition must hold what was acknowledged, no less and no more, and all of it was read."""
    failures = []
    for row in ledger:
        wanted, there, read = row["acknowledged"], row["log_end"], row["read_to"]
        where = f"partition {row['partition']}: {wanted:,} records"
        if there != wanted:
            failures.append(f"{where} were acknowledged, the log ends at {there:,}")
        if read != wanted:
            failures.append(f"{where} were acknowledged, {read:,} were read")
    return failures


def _judge(figure: Figure, columns: Columns, span_s: float) -> Verdict:
    times_s, values = series(columns, figure.name)
    return judge(figure, times_s, values, span_s=span_s)


# ---- files


def write_json(report: Report, path: Path) -> None:
    """Put the whole file into place at once; one line for each column, so that a change can be read."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(_json(asdict(report), depth=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def _json(value: object, *, depth: int) -> str:
    """Objects are spread over lines down to a depth; everything below is one line."""
    if depth and isinstance(value, dict) and value:
        inside = ",\n".join(
            f"{json.dumps(key)}: {_json(item, depth=depth - 1)}" for key, item in value.items()
        )
        return f"{{\n{inside}\n}}"
    return json.dumps(value)


def read_json(path: Path) -> Report:
    """A report that was written before."""
    row = json.loads(path.read_text(encoding="utf-8"))
    verdicts = [Verdict(**each) for each in row.pop("verdicts")]
    return Report(verdicts=verdicts, **row)


# ---- Markdown


def as_markdown(report: Report) -> str:
    """The whole report."""
    parts = ["# Soak", headline(report), load_line(report), verdict_table(report), "## The ledger"]
    parts += [ledger_table(report), visit_line(report), latency_line(report)]
    if report.failures:
        parts += ["## Failures", "\n".join(f"- {why}" for why in report.failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: Report) -> str:
    """The outcome, when and where."""
    outcome = "passed" if report.passed else "failed"
    cut = ", interrupted" if report.interrupted else ""
    facts = [f"{key} {value}" for key, value in report.machine.items() if value is not None]
    return f"Soak {outcome}: {report.span_s / 60:.1f} minutes{cut}. {report.began}; {', '.join(facts)}"


def load_line(report: Report) -> str:
    """What it took at most, and what it was given."""
    if not report.capacity or not report.target:
        return "The load was never calibrated."
    most, given = report.capacity, report.target
    return (
        f"Calibration: {_text(most, 'singles_per_s')} single records/s and {_text(most, 'batches_per_s')}"
        f" batches of 16 KiB/s together, broker at {_text(most, 'cpu')} cores, generator at"
        f" {_text(most, 'generator_cpu')}. Soak: {_text(given, 'singles_per_s')} and"
        f" {_text(given, 'batches_per_s')} a second, which is {_text(given, 'records_per_s')} records/s and"
        f" {_text(given, 'mb_per_s')} MB/s."
    )


def verdict_table(report: Report) -> str:
    """Each figure with its medians and its trend."""
    if not report.verdicts:
        return ""
    rows = [
        [
            f"{each.title}, {each.unit}" if each.unit else each.title,
            _number(each.second),
            _number(each.last),
            "-" if each.slope_per_hour is None else f"{each.slope_per_hour:+,.2f}",
            f"{each.course} {'✓' if each.passed else '✗'}",
        ]
        for each in report.verdicts
    ]
    return markdown(["figure", "second quarter", "last quarter", "per hour", "verdict"], rows)


def ledger_table(report: Report) -> str:
    """Acknowledged, in the log, read."""
    rows = [
        [
            str(row["partition"]),
            *(f"{row[key]:,}" for key in ("acknowledged", "log_end", "read_to", "log_start")),
        ]
        for row in report.ledger
    ]
    if not rows:
        return "Nothing was counted."
    return markdown(["partition", "acknowledged", "log end", "read to", "log start"], rows)


def visit_line(report: Report) -> str:
    """How many came and went."""
    shown = ", ".join(f"{count} {name}" for name, count in report.visits.items())
    return f"Came and went: {shown}." if shown else ""


def latency_line(report: Report) -> str:
    """How long acknowledgements took: medians of the seconds after the warm-up."""
    shown = []
    for name, title in (("singles", "single records"), ("batches", "batches")):
        seen = [_middle(report, f"{name}_{part}_ms") for part in ("p50", "p99")]
        if None not in seen:
            shown.append(f"{title} p50 {_number(seen[0])} ms, p99 {_number(seen[1])} ms")
    return f"Acknowledged within (median second): {'; '.join(shown)}." if shown else ""


def _middle(report: Report, name: str) -> float | None:
    times_s, values = series(report.samples, name)
    seen = [value for at, value in zip(times_s, values, strict=True) if quarter(at, report.span_s) > 0]
    return median(seen) if seen else None


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    return _number(value if isinstance(value, float) else None)


def _number(value: float | None) -> str:
    return number_text(value)
