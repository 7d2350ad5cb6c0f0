"""Lines over time as inline SVG: no script, no font and no file from elsewhere.

The warm-up is shaded, since no verdict looks at it. Lines differ in dashes as well as in colour, for whoever
does not see the colours. Colours are classes, which the page sets for light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tailrace.page import tick_step

_WIDTH, _HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 28, 24
_TICKS = 4
_POINTS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series; times are seconds."""

    label: str
    times_s: Sequence[float]
    values: Sequence[float]


def lines(title: str, rows: Sequence[Line], *, unit: str, span_s: float) -> str:
    """One chart whose scale begins at zero; nothing if there is nothing to show."""
    shown = [row for row in rows if row.values]
    if not shown or span_s <= 0:
        return ""
    step = tick_step(max(max(row.values) for row in shown))
    top = step * _TICKS
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="0" y="14" class="title">{escape(title)}'
        f' <tspan class="quiet">{escape(unit)}</tspan></text>',
        _legend(shown) if len(shown) > 1 else "",
        f'<rect class="warm" x="{_LEFT}" y="{_TOP}" width="{_x(span_s / 4, span_s) - _LEFT:.1f}"'
        f' height="{_HEIGHT - _TOP - _BOTTOM}"/>',
        *(_grid(step * at, top=top) for at in range(_TICKS + 1)),
        *(_time(span_s * at / 4, span_s) for at in range(5)),
        *(_path(row, number, span_s=span_s, top=top) for number, row in enumerate(shown)),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def thin(times_s: Sequence[float], values: Sequence[float], points_max: int) -> list[tuple[float, float]]:
    """At most so many points: of every stretch its least and its greatest value, in their order."""
    if len(values) <= points_max:
        return list(zip(times_s, values, strict=True))
    kept: list[int] = []
    stretches = points_max // 2
    for at in range(stretches):
        stretch = range(len(values) * at // stretches, len(values) * (at + 1) // stretches)
        least, most = min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)
        kept += sorted({least, most})
    return [(times_s[at], values[at]) for at in kept]


def _path(row: Line, number: int, *, span_s: float, top: float) -> str:
    points = thin(row.times_s, row.values, _POINTS_MAX)
    drawn = "L".join(f"{_x(at, span_s):.1f} {_y(value, top):.1f}" for at, value in points)
    return f'<path class="line line{number}" d="M{drawn}"><title>{escape(row.label)}</title></path>'


def _grid(value: float, *, top: float) -> str:
    y = _y(value, top)
    return (
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text class="quiet" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>'
    )


def _time(at_s: float, span_s: float) -> str:
    shown = f"{at_s / 60:.4g} min" if span_s >= 120 else f"{at_s:.0f} s"
    anchor = "end" if at_s >= span_s else "middle"
    x, y = _x(at_s, span_s), _HEIGHT - 6
    return f'<text class="quiet" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{shown}</text>'


def _legend(rows: Sequence[Line]) -> str:
    """From the right end to the left, above the plot."""
    parts, right = [], _WIDTH - _RIGHT
    for number, row in reversed(list(enumerate(rows))):
        parts.append(f'<text x="{right}" y="14" text-anchor="end">{escape(row.label)}</text>')
        right -= 8 * len(row.label) + 6
        parts.append(f'<path class="line line{number}" d="M{right - 26} 10H{right}"/>')
        right -= 42
    return "".join(parts)


def _x(at_s: float, span_s: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(at_s / span_s, 1.0)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top
