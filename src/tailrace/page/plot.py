"""Bars and lines as inline SVG: no script, no font and no file from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 720, 250, 90
_ROW, _BAR = 24, 14
_LINE_WIDTH, _LINE_HEIGHT, _LINE_TOP, _LINE_SIDE = 340, 170, 50, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A median, and the least and the most of its rounds."""

    label: str
    value: float
    low: float
    high: float
    ours: bool = False


def bars(title: str, rows: Sequence[Bar], *, unit: str) -> str:
    """One chart; nothing for no bars. The scale begins at zero and ends with the greatest round."""
    if not rows:
        return ""
    top = max(bar.high for bar in rows) or 1.0
    scale = (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) / top
    height = _ROW * len(rows) + 26
    lines = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<text x="0" y="14" class="title">{escape(title)} <tspan class="unit">{escape(unit)}</tspan></text>',
    ]
    for at, bar in enumerate(rows):
        lines.append(_bar(bar, y=26 + at * _ROW, scale=scale))
    lines.append("</svg>")
    return "\n".join(lines)


def _bar(bar: Bar, *, y: int, scale: float) -> str:
    kind = "ours" if bar.ours else "theirs"
    low, high = _LABEL_WIDTH + bar.low * scale, _LABEL_WIDTH + bar.high * scale
    middle = y + _BAR / 2
    return (
        f'<text x="{_LABEL_WIDTH - 8}" y="{y + 11}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect class="{kind}" x="{_LABEL_WIDTH}" y="{y}" width="{bar.value * scale:.1f}"'
        f' height="{_BAR}" rx="2"/>'
        f'<path class="range" d="M{low:.1f} {middle}H{high:.1f}"/>'
        f'<text x="{high + 6:.1f}" y="{y + 11}">{_number(bar.value)}</text>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A figure at one size."""

    x: float
    value: float
    label: str  # of the size


def line(title: str, dots: Sequence[Dot], *, unit: str) -> str:
    """One small chart; nothing for no dots. Sizes on a logarithmic scale, figures on one from zero."""
    places = [(_place(dot.x, dots), _level(dot.value, dots), dot) for dot in dots if dot.x > 0]
    if not places:
        return ""
    bottom = _LINE_HEIGHT - 22
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
    lines = [
        f'<svg viewBox="0 0 {_LINE_WIDTH} {_LINE_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="0" y="14" class="title">{escape(title)}</text>',
        f'<text x="0" y="30" class="unit">{escape(unit)}</text>',
        f'<path class="axis" d="M0 {bottom}H{_LINE_WIDTH}"/><path class="line" d="M{path}"/>',
    ]
    for x, y, dot in places:
        lines.append(
            f'<circle class="ours" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
            f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{_number(dot.value)}</text>'
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" class="unit">'
            f"{escape(dot.label)}</text>"
        )
    lines.append("</svg>")
    return "\n".join(lines)


def _place(x: float, dots: Sequence[Dot]) -> float:
    """From left to right by the logarithm of the size; a single one in the middle."""
    low, high = (math.log(end(dot.x for dot in dots if dot.x > 0)) for end in (min, max))
    share = 0.5 if low == high else (math.log(x) - low) / (high - low) if x > 0 else 0.0
    return _LINE_SIDE + share * (_LINE_WIDTH - 2 * _LINE_SIDE)


def _level(value: float, dots: Sequence[Dot]) -> float:
    top = max(dot.value for dot in dots) or 1.0
    bottom = _LINE_HEIGHT - 22
    return bottom - value / top * (bottom - _LINE_TOP)


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
