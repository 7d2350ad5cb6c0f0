"""The page of `tailrace bench`: what every load reached as bars, its latencies on one scale, and the table.

Bars of one chart share a scale that begins at zero. Latencies of different loads are decades apart, so their
scale is logarithmic: a line runs from the median over the 99th percentile to the 99.9th.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from html import escape

from tailrace.bench.broker_report import BrokerReport, write_value
from tailrace.bench.wire.broker import ShapeResult
from tailrace.page import document, facts, table

_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 900, 290, 80
_ROW, _BAR = 24, 14
_PLOT_WIDTH = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
_LARGE_MB_PER_S = 20.0  # below that, megabytes say nothing of a load of single records


def write_broker_page(report: BrokerReport, *, measured_at: datetime) -> str:
    """The whole page."""
    loads = report.loads
    large = [load for load in loads if load.mb_per_s >= _LARGE_MB_PER_S]
    parts = [
        _stopped(report),
        _bars("Requests or records per second", loads, lambda load: load.per_s),
        _bars("MB per second", large, lambda load: load.mb_per_s),
        _latencies(loads),
        _bars("Processor time of the broker, µs per request", loads, lambda load: load.cpu_us),
        "<h2>All figures</h2>",
        _table(report),
        *(f"<p>{escape(note)}</p>" for note in report.notes()),
        "<h2>The broker</h2>",
        facts(report.lines()),
        "<h2>Measured from</h2>",
        facts(report.machine),
    ]
    return document(
        report.command(),
        heading=f"The broker at {report.broker['address']}",
        measured_at=measured_at,
        body="\n".join(part for part in parts if part),
        row=report.as_row(),
    )


def _stopped(report: BrokerReport) -> str:
    if report.stopped is None:
        return ""
    return f'<p class="missed">Not every load was measured: {escape(report.stopped)}</p>'


def _table(report: BrokerReport) -> str:
    figures = report.figures()
    head = '<th scope="col">load</th>'
    head += "".join(f'<th class="number" scope="col">{escape(each.title)}</th>' for each in figures)
    rows = (
        f'<th scope="row">{escape(load.title)}</th>'
        + "".join(f'<td class="number">{_cell(each.value_in(load))}</td>' for each in figures)
        for load in report.loads
    )
    return table(head, rows)


def _cell(value: float | None) -> str:
    return "" if value is None else write_value(value)


# ---- plots


def _plot(title: str, lines: Sequence[str], *, height: int) -> str:
    """A heading and a drawing under it, told to those who do not see it."""
    return (
        f'<h2>{escape(title)}</h2>\n<div class="scroll"><svg class="plot" role="img"'
        f' aria-label="{escape(title)}" width="{_WIDTH}" height="{height}">\n'
        + "\n".join(lines)
        + "\n</svg></div>"
    )


def _label(text: str, *, row: int) -> str:
    return f'<text x="{_LABEL_WIDTH - 10}" y="{row * _ROW + 12}" text-anchor="end">{escape(text)}</text>'


def _bars(title: str, loads: Iterable[ShapeResult], value_of: Callable[[ShapeResult], float | None]) -> str:
    """One bar for every load that has the figure; nothing if none has."""
    found = [(load.title, value) for load in loads if (value := value_of(load)) is not None]
    if not found:
        return ""
    scale = _PLOT_WIDTH / (max(value for _, value in found) or 1.0)
    lines = []
    for row, (name, value) in enumerate(found):
        width = max(value * scale, 1.0)
        lines.append(
            f'{_label(name, row=row)}<rect class="met" x="{_LABEL_WIDTH}" y="{row * _ROW}"'
            f' width="{width:.1f}" height="{_BAR}" rx="2"/>'
            f'<text x="{_LABEL_WIDTH + width + 6:.1f}" y="{row * _ROW + 12}">{write_value(value)}</text>'
        )
    return _plot(title, lines, height=len(found) * _ROW)


def _latencies(loads: Iterable[ShapeResult]) -> str:
    found = [
        (load.title, load.p50_ms, load.p99_ms, load.p999_ms)
        for load in loads
        if load.p50_ms is not None and load.p99_ms is not None and load.p999_ms is not None
    ]
    if not found:
        return ""
    scale = _LogScale.over([value for _, *values in found for value in values])
    bottom = len(found) * _ROW
    lines = [_decade(scale, power, bottom) for power in range(scale.low, scale.high + 1)]
    lines += [
        _label(name, row=row) + _range(scale, row, p50, p99, p999)
        for row, (name, p50, p99, p999) in enumerate(found)
    ]
    return _plot("Latency in ms: median, p99 and p99.9", lines, height=bottom + 22)


class _LogScale:
    """Milliseconds to x, over whole powers of ten."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    @classmethod
    def over(cls, values: Sequence[float]) -> _LogScale:
        above = [value for value in values if value > 0] or [1.0]
        low = math.floor(math.log10(min(above)))
        return cls(low, max(math.ceil(math.log10(max(above))), low + 1))

    def x(self, value_ms: float) -> float:
        power = max(math.log10(value_ms), self.low) if value_ms > 0 else self.low
        return _LABEL_WIDTH + (power - self.low) / (self.high - self.low) * _PLOT_WIDTH


def _decade(scale: _LogScale, power: int, bottom: int) -> str:
    x = scale.x(10.0**power)
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom}"/>'
        f'<text class="quiet" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g}</text>'
    )


def _range(scale: _LogScale, row: int, p50: float, p99: float, p999: float) -> str:
    y = row * _ROW + _BAR / 2
    from_x, to_x = scale.x(p50), scale.x(p999)
    told = f"{write_value(p50)}, {write_value(p99)}, {write_value(p999)} ms"
    return (
        f'<g><title>{told}</title><line class="range" x1="{from_x:.1f}" x2="{to_x:.1f}" y1="{y}" y2="{y}"/>'
        f'<circle class="met" cx="{from_x:.1f}" cy="{y}" r="5"/>'
        f'<circle class="met" cx="{scale.x(p99):.1f}" cy="{y}" r="3.5"/>'
        f'<circle class="met" cx="{to_x:.1f}" cy="{y}" r="2.5"/></g>'
    )
