"""The report as text: Markdown tables, which a terminal shows well enough and a README takes as they are."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report import Report, middle, number

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


def goal_table(report: Report) -> str:
    """Each goal, what was reached, and a tick."""
    rows = []
    for goal in report.goals:
        value, met = number(goal["value"]), goal["met"]
        reached = "not measured" if value is None else f"{figure(value)} {goal['unit']}".replace(" x", "x")
        rows.append(
            [str(goal["text"]), str(goal["bound"]), reached, "" if met is None else "✓" if met else "✗"]
        )
    return markdown(["goal, against Kafka in the same run", "goal", "reached", ""], rows)


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
    if report.interrupted:
        lines.append("the run was interrupted: what came later is missing")
    return lines


def as_markdown(report: Report) -> str:
    """The whole report."""
    parts = ["# Tailrace beside its peers", machine_line(report), goal_table(report), "## Servers"]
    parts.append(server_table(report))
    if report.ceiling:
        shown = ", ".join(f"{key} {figure(number(value))}" for key, value in report.ceiling.items())
        parts.append(f"The generator alone, against a handler that does nothing: {shown}.")
    for load, title in report.loads.items():
        if table := load_table(report, load):
            parts += [f"## {title}", table]
    if missing := notes(report):
        parts += ["## What is missing", "\n".join(f"- {line}" for line in missing)]
    return "\n\n".join(parts) + "\n"
