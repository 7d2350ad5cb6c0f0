"""Columns over time or over size, and shares as small bars in a table; inline SVG.

Columns stand on a scale that begins at zero and has round ticks. Every one says its figure when pointed at,
and the chart as a whole is told to those who do not see it. On a narrow screen the chart scrolls in its frame
instead of shrinking until nobody can read it; a share is as wide as its cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 4, 8, 24
_TICKS = 4
_GAP_SHARE = 0.18  # of a column's room
_TICK_ROOM = 70  # what a label under the axis takes
_COLUMN_WIDTH_MAX = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A figure, what is said of it, and what stands under it."""

    value: float
    told: str
    tick: str = ""


def columns(title: str, rows: Sequence[Column], *, write: Callable[[float], str], unit: str = "") -> str:
    """One chart under its title; nothing for no columns. `write` makes the figures on the scale."""
    if not rows:
        return ""
    step = tick_step(max(row.value for row in rows))
    top = step * _TICKS
    room = (_WIDTH - _LEFT - _RIGHT) / len(rows)
    parts = [
        f"<h3>{escape(title)}{_unit(unit)}</h3>",
        f'<div class="scroll"><svg class="plot wide" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-label="{escape(title)}">',
        *(_grid(step * at, top=top, write=write) for at in range(_TICKS + 1)),
        *(_column(row, at, room=room, top=top) for at, row in enumerate(rows)),
        *_ticks(rows, room=room),
        "</svg></div>",
    ]
    return "\n".join(parts)


def share_bar(share: float, *, label: str) -> str:
    """A share of 1 as a bar that fills its cell; what is beyond 1 is 1."""
    width = min(max(share, 0.0), 1.0) * 100
    return (
        f'<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(label)}"><rect class="track" width="100" height="10"/>'
        f'<rect class="met" width="{width:.2f}" height="10"/></svg>'
    )


def tick_step(most: float, *, ticks: int = _TICKS) -> float:
    """A round step of which so many reach the greatest value: 1, 2, 2.5 or 5 times a power of ten."""
    if not 0 < most < math.inf:
        return 1.0
    rough = most / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10, 20) if factor * power >= rough * (1 - 1e-9))


def _unit(unit: str) -> str:
    return f' <span class="quiet">{escape(unit)}</span>' if unit else ""


def _y(value: float, *, top: float) -> float:
    return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(value: float, *, top: float, write: Callable[[float], str]) -> str:
    y = _y(value, top=top)
    return (
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(write(value))}</text>'
    )


def _column(row: Column, at: int, *, room: float, top: float) -> str:
    y, bottom = _y(row.value, top=top), _HEIGHT - _BOTTOM
    height = max(bottom - y, 1.0) if row.value > 0 else 0.0  # a little is not nothing
    width = min(room * (1 - _GAP_SHARE), _COLUMN_WIDTH_MAX)
    x = _LEFT + (at + 0.5) * room - width / 2
    return (
        f'<rect class="met" x="{x:.1f}" y="{bottom - height:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}"><title>{escape(row.told)}</title></rect>'
    )


def _ticks(rows: Sequence[Column], *, room: float) -> list[str]:
    """The labels under the axis, without those that would run into the one before or say the same."""
    shown: list[str] = []
    free_from, last = 0.0, ""
    for at, row in enumerate(rows):
        x = _LEFT + (at + 0.5) * room
        fits = x - _TICK_ROOM / 2 >= free_from and x + _TICK_ROOM / 2 <= _WIDTH
        if row.tick and row.tick != last and fits:
            free_from, last = x + _TICK_ROOM / 2, row.tick
            text = escape(row.tick)
            shown.append(
                f'<text class="quiet" x="{x:.1f}" y="{_HEIGHT - 7}" text-anchor="middle">{text}</text>'
            )
    return shown
