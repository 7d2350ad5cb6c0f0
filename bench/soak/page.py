"""The report as one HTML page: verdicts, ledger, and a chart of every figure over time. It loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.soak.chart import Line, lines
from bench.soak.report import Columns, Report, headline, latency_line, load_line, series, visit_line
from bench.table import figure

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --quiet: #60646c; --rule: #d9d9e0; --paper: #fcfcfd;
  --warm: #8881; --line0: #0a7f78; --line1: #b4530a; --line2: #8d8d99; --met: #0a7f38; --missed: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --quiet: #b0b4ba; --rule: #43484e;
  --paper: #111113; --warm: #fff1; --line0: #3cc4bb; --line1: #f0904a; --line2: #777b84; --met: #4cb38a;
  --missed: #ec6f59; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; font-weight: normal; padding: .25rem .5rem;
  border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } thead th, .quiet { color: var(--quiet); }
.met { color: var(--met); } .missed { color: var(--missed); font-weight: 600; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; height: auto; margin: 1.2rem 0; }
svg text { font-size: 12px; fill: var(--ink); }
svg .title { font-weight: 600; } svg .quiet { fill: var(--quiet); font-weight: 400; }
svg .warm { fill: var(--warm); } svg .grid { stroke: var(--rule); stroke-width: 1; fill: none; }
svg .line { fill: none; stroke-width: 1.5; stroke-linejoin: round; stroke: var(--line0); }
svg .line1 { stroke: var(--line1); stroke-dasharray: 6 2; }
svg .line2 { stroke: var(--line2); stroke-dasharray: 2 2; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart and the columns it shows, each with its label."""

    title: str
    unit: str
    columns: tuple[tuple[str, str], ...]


CHARTS = (
    Chart(
        title="Memory",
        unit="MB",
        columns=(("rss_mb", "resident"), ("pss_mb", "proportional"), ("anonymous_mb", "anonymous")),
    ),
    Chart(title="Open descriptors", unit="", columns=(("descriptors", "descriptors"),)),
    Chart(title="Event-loop lag", unit="ms", columns=(("lag_p50_ms", "p50"), ("lag_p99_ms", "p99"))),
    Chart(title="Event-loop lag, worst of each window", unit="ms", columns=(("lag_max_ms", "max"),)),
    Chart(title="Load achieved", unit="records/s", columns=(("records_per_s", "records/s"),)),
    Chart(
        title="Bytes in and out",
        unit="MB/s",
        columns=(("mb_per_s", "acknowledged"), ("fetched_mb_per_s", "fetched")),
    ),
    Chart(
        title="Acknowledged within, p99",
        unit="ms",
        columns=(("singles_p99_ms", "single records"), ("batches_p99_ms", "16 KiB")),
    ),
    Chart(title="Processor", unit="cores", columns=(("cpu", "broker"), ("generator_cpu", "generator"))),
    Chart(title="Data directory", unit="MB", columns=(("disk_mb", "data directory"),)),
    Chart(title="Log offsets", unit="records", columns=(("log_end", "end"), ("log_start", "start"))),
    Chart(title="Threads", unit="", columns=(("threads", "threads"),)),
)


def as_page(report: Report) -> str:
    """The whole page."""
    body = [
        "<h1>Soak</h1>",
        f"<p>{escape(headline(report))}</p>",
        f"<p>{escape(load_line(report))}</p>",
        _failures(report),
        _verdicts(report),
        '<p class="quiet">Medians of the second and of the last quarter; the first is warm-up. Flat is within'
        " a tenth, or within what is noise for the figure. The slope is a least-squares line through the last"
        " three quarters.</p>",
        "<h2>Over time</h2>",
        *(_chart(report, chart) for chart in CHARTS),
        "<h2>The ledger</h2>",
        _ledger(report),
        f"<p>{escape(visit_line(report))} {escape(latency_line(report))}</p>",
        "<h2>Settings</h2>",
        _table(
            ["setting", ""], [[escape(name), escape(str(value))] for name, value in report.settings.items()]
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Tailrace soak</title><style>\n{_STYLE}\n</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _failures(report: Report) -> str:
    if not report.failures:
        return ""
    return '<ul class="missed">' + "".join(f"<li>{escape(why)}</li>" for why in report.failures) + "</ul>"


def _verdicts(report: Report) -> str:
    rows = [
        [
            escape(f"{each.title}, {each.unit}" if each.unit else each.title),
            figure(each.second),
            figure(each.last),
            "-" if each.slope_per_hour is None else f"{each.slope_per_hour:+,.2f}",
            f'<b class="{"met" if each.passed else "missed"}">{escape(each.course)}'
            f" {'✓' if each.passed else '✗'}</b>",
        ]
        for each in report.verdicts
    ]
    return _table(["figure", "second quarter", "last quarter", "per hour", "verdict"], rows) if rows else ""


def _chart(report: Report, chart: Chart) -> str:
    rows = []
    for name, label in chart.columns:
        columns: Columns = report.windows if name in report.windows else report.samples
        times_s, values = series(columns, name)
        rows.append(Line(label=label, times_s=times_s, values=values))
    return lines(chart.title, rows, unit=chart.unit, span_s=report.span_s)


def _ledger(report: Report) -> str:
    keys = ("partition", "acknowledged", "log_end", "read_to", "log_start")
    rows = [[f"{row[key]:,}" for key in keys] for row in report.ledger]
    return _table(["partition", "acknowledged", "log end", "read to", "log start"], rows)
