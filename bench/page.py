"""The report as one HTML page: goals, servers, a chart and a table for every load and every curve.

It loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.report import Report, Row, number, rows_of
from bench.table import COLUMNS, curve_columns, figure, growth_text, has_peers, machine_line, notes, remark
from tailrace.page import Bar, Dot, bars, line

_STYLE = """
:root { color-scheme: light dark; --ours: #0a7f78; --theirs: #9aa5b1; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2, h3 { font-size: 1.1rem; margin-top: 2.2rem; }
h2.part { font-size: 1.3rem; margin-top: 3.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.met { color: #0a7f38; } .missed { color: #c0392b; } .quiet { opacity: .7; }
svg { width: 100%; height: auto; margin: .6rem 0; } svg text { font-size: 12px; fill: currentColor; }
svg .title { font-weight: 600; } svg .unit { font-weight: 400; opacity: .7; }
svg .ours { fill: var(--ours); } svg .theirs { fill: var(--theirs); }
svg .range { stroke: currentColor; stroke-width: 1.5; opacity: .6; }
svg .line { stroke: var(--ours); stroke-width: 2; fill: none; } svg .axis { stroke: var(--line); }
.lines { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 0 1.5rem; }
"""
CHARTS = (
    ("per_s", "how many", "per second"),
    ("mb_per_s", "how much", "MB/s"),
    ("p99_ms", "p99 latency", "ms"),
)
_SMALL_MB_PER_S = 20.0  # of loads of single records megabytes say nothing


def as_page(
    report: Report,
    *,
    title: str = "Tailrace beside its peers",
    against: str = "against Kafka in the same run",
    charts: Sequence[tuple[str, str, str]] = CHARTS,
) -> str:
    """The whole page."""
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(machine_line(report))}</p>',
        *([_goals(report, against), "<h2>Servers</h2>", _servers(report)] if has_peers(report) else []),
        *(_load(report, name, words, charts) for name, words in report.loads.items()),
        *_scaling(report),
        _missing(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _table(header: list[str], rows: list[list[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{cell}</th>" for cell in header)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _goals(report: Report, against: str) -> str:
    rows = []
    for goal in report.goals:
        value, met = number(goal["value"]), goal["met"]
        mark = "" if met is None else '<b class="met">✓</b>' if met else '<b class="missed">✗</b>'
        reached = "not measured" if value is None else f"{figure(value)} {escape(str(goal['unit']))}"
        rows.append([escape(str(goal["text"])), escape(str(goal["bound"])), reached, mark])
    return _table([f"Goal, {escape(against)}", "goal", "reached", ""], rows)


def _servers(report: Report) -> str:
    rows = []
    for name, facts in report.servers.items():
        ready = report.fact(name, "ready_s")
        idle_cpu = None if facts.idle_cpu is None else facts.idle_cpu * 100
        cells = (ready, facts.idle_rss_mb, facts.loaded_rss_mb, idle_cpu)
        rows.append([escape(name), escape(facts.version), *map(figure, cells)])
    return _table(["server", "version", "ready s", "idle MB", "loaded MB", "idle CPU %"], rows)


def _load(report: Report, load: str, title: str, charts: Sequence[tuple[str, str, str]]) -> str:
    measured = [target for target in report.targets if report.values(load, target, "count")]
    if not measured:
        return ""
    parts = [f"<h2>{escape(title)}</h2>"]
    parts += [_chart(report, load, measured, *chart) for chart in charts]
    columns = [
        (key, name) for key, name in COLUMNS if any(report.values(load, each, key) for each in measured)
    ]
    rows = [
        [escape(report.targets[each]), *(figure(report.value(load, each, key)) for key, _ in columns)]
        for each in measured
    ]
    parts.append(_table(["", *(escape(name) for _, name in columns)], rows))
    return "\n".join(part for part in parts if part)


def _chart(report: Report, load: str, targets: list[str], key: str, title: str, unit: str) -> str:
    rows = []
    for target in targets:
        seen = report.values(load, target, key)
        value = report.value(load, target, key)
        if value is not None:
            label, ours = report.targets[target], target.startswith("tailrace")
            rows.append(Bar(label=label, value=value, low=min(seen), high=max(seen), ours=ours))
    if key == "mb_per_s" and max((bar.value for bar in rows), default=0) < _SMALL_MB_PER_S:
        return ""
    return bars(title, rows, unit=unit)


def _scaling(report: Report) -> list[str]:
    curves = [_curve(curve) for curve in report.scaling if rows_of(curve["points"])]
    return ['<h2 class="part">Tailrace: cost against size</h2>', *curves] if curves else []


def _curve(curve: Row) -> str:
    points, columns = rows_of(curve["points"]), curve_columns(curve)
    charts = [_line(points, each) for each in rows_of(curve["figures"])]
    rows = [
        [escape(str(point["label"])), *(figure(number(point.get(key))) for key, _ in columns)]
        for point in points
    ]
    rows.append(["last / first", *(growth_text(curve, key) for key, _ in columns)])
    table = _table([escape(str(curve["x"])), *(escape(title) for _, title in columns)], rows)
    why = f"<p>{escape(remark(curve))}</p>" if remark(curve) else ""
    return f'<h3>{escape(str(curve["title"]))}</h3>{why}<div class="lines">{"".join(charts)}</div>{table}'


def _line(points: list[Row], each: Row) -> str:
    dots = [
        Dot(x=x, value=value, label=str(point["label"]))
        for point in points
        if (x := number(point["x"])) is not None
        and (value := number(point.get(str(each["key"])))) is not None
    ]
    return line(str(each["title"]), dots, unit=str(each["unit"]))


def _missing(report: Report) -> str:
    lines = notes(report)
    if not lines:
        return ""
    return "<h2>What is missing</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
