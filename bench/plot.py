"""Bars as inline SVG: no script, no font and no file from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 720, 250, 90
_ROW, _BAR = 24, 14


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


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
