"""The report as text: Markdown tables, which a terminal shows well enough and a README takes as they are."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report import Report, Row, growth, middle, number, rows_of
from bench.scaling.remarks import REMARKS

COLUMNS = (
    ("per_s", "/s"),
    ("mb_per_s", "MB/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("p999_ms", "p99.9 ms"),
    ("cpu_us", "CPU µs each"),
    ("cpu_ms_per_mb", "CPU ms/MB"),
    ("rss_mb", "RSS MB"),
)
_MACHINE = ("cpu", "cores", "memory_bytes", "kernel", "file_system", "python", "uvloop", "tailrace")


def figure(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up; the first is left-aligned, the others right."""
    widths = [max(len(line[at]) for line in (header, *rows)) for at in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if at == 0 else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    return "\n".join([line(header), f"| {' | '.join(rule)} |", *map(line, rows)])


def goal_table(report: Report, *, against: str = "against Kafka in the same run") -> str:
    """Each goal, what was reached, and a tick."""
    rows = []
    for goal in report.goals:
        value, met = number(goal["value"]), goal["met"]
        reached = "not measured" if value is None else f"{figure(value)} {goal['unit']}".replace(" x", "x")
        rows.append(
            [str(goal["text"]), str(goal["bound"]), reached, "" if met is None else "✓" if met else "✗"]
        )
    return markdown([f"goal, {against}", "goal", "reached", ""], rows)


def server_table(report: Report) -> str:
    """What each server is and needs before any load."""
    rows = []
    for name, facts in report.servers.items():
        idle_cpu = None if facts.idle_cpu is None else facts.idle_cpu * 100
        cells = (middle(facts.ready_s), facts.idle_rss_mb, facts.loaded_rss_mb, idle_cpu)
        rows.append([name, facts.version, *map(figure, cells)])
    return markdown(["server", "version", "ready s", "idle MB", "loaded MB", "idle CPU %"], rows)


def load_table(report: Report, load: str) -> str:
    """One load on all targets; only columns that somebody has a figure for."""
    columns = [
        (key, title)
        for key, title in COLUMNS
        if any(report.value(load, target, key) is not None for target in report.targets)
    ]
    rows = []
    for target, title in report.targets.items():
        if report.values(load, target, "count"):
            rows.append([title, *(figure(report.value(load, target, key)) for key, _ in columns)])
    return markdown(["", *(title for _, title in columns)], rows) if rows else ""


def curve_columns(curve: Row) -> list[tuple[str, str]]:
    """Key and heading of every figure of a curve that was measured at some size."""
    points = rows_of(curve["points"])
    return [
        (str(each["key"]), f"{each['title']}, {each['unit']}")
        for each in rows_of(curve["figures"])
        if any(number(point.get(str(each["key"]))) is not None for point in points)
    ]


def growth_text(curve: Row, key: str) -> str:
    """How a figure grew from the first size to the last."""
    times = growth(curve, key)
    if times is None:
        return "-"
    return f"{figure(times)}x" if times >= 0.1 else f"{times:.2g}x"


def curve_table(curve: Row) -> str:
    """One curve, a row for each size, and how everything grew; nothing if it has no points."""
    points, columns = rows_of(curve["points"]), curve_columns(curve)
    rows = [
        [str(point["label"]), *(figure(number(point.get(key))) for key, _ in columns)] for point in points
    ]
    rows.append(["last / first", *(growth_text(curve, key) for key, _ in columns)])
    return markdown([str(curve["x"]), *(title for _, title in columns)], rows) if points else ""


def remark(curve: Row) -> str:
    """Why it bends, where that is known."""
    return REMARKS.get(str(curve["name"]), "")


def has_peers(report: Report) -> bool:
    """Whether it is about more than curves."""
    return bool(report.goals or report.servers or report.skipped)


def machine_line(report: Report) -> str:
    """Where and when."""
    facts = [f"{key} {report.machine[key]}" for key in _MACHINE if report.machine.get(key) is not None]
    return f"{report.began}, {'quick, ' if report.quick else ''}{report.took_s:.0f} s; {', '.join(facts)}"


def notes(report: Report) -> list[str]:
    """What is missing, and why."""
    lines = [f"{name}: skipped. {why}" for name, why in report.skipped.items()]
    seen = dict.fromkeys((str(row["target"]), str(row["why"])) for row in report.unsupported)
    lines += [f"{target}: {why}" for target, why in seen]
    lines += [
        f"{row['target']}, {row['load']}, round {row['round']}: {row['why']}" for row in report.failures
    ]
    lines += [
        f"{curve['title']}, {row['label']}: {row['why']}"
        for curve in report.scaling
        for row in rows_of(curve["missing"])
    ]
    if report.interrupted:
        lines.append("the run was interrupted: what came later is missing")
    return lines


def as_markdown(report: Report) -> str:
    """The whole report."""
    parts = ["# Tailrace beside its peers", machine_line(report)]
    if has_peers(report):
        parts += [goal_table(report), "## Servers", server_table(report)]
    if report.ceiling:
        shown = ", ".join(f"{key} {figure(number(value))}" for key, value in report.ceiling.items())
        parts.append(f"The generator alone, against a handler that does nothing: {shown}.")
    for load, title in report.loads.items():
        if table := load_table(report, load):
            parts += [f"## {title}", table]
    parts += scaling_parts(report)
    if missing := notes(report):
        parts += ["## What is missing", "\n".join(f"- {line}" for line in missing)]
    return "\n\n".join(parts) + "\n"


def scaling_parts(report: Report) -> list[str]:
    """The curves, under a heading of their own."""
    parts = []
    for curve in report.scaling:
        if table := curve_table(curve):
            parts += [f"### {curve['title']}", table, remark(curve)]
    return ["## Tailrace: cost against size", *filter(None, parts)] if parts else []
