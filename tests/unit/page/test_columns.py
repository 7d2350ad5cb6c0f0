"""Charts of columns as SVG, read back with an XML parser."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from tailrace.page import Column, columns, share_bar, tick_step


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<page>{text}</page>")


def chart(*values: float, ticks: tuple[str, ...] = ()) -> ElementTree.Element:
    rows = [
        Column(value=value, told=f"<{value}>", tick=ticks[at] if at < len(ticks) else "")
        for at, value in enumerate(values)
    ]
    return parsed(columns("A & B", rows, write=lambda value: f"{value:g}", unit="<u>"))


def test_columns_are_as_high_as_their_values() -> None:
    heights = [float(rect.attrib["height"]) for rect in chart(0, 50, 100).iter("rect")]
    assert heights[0] == 0
    assert heights[2] == pytest.approx(2 * heights[1], abs=0.2)


def test_a_little_is_not_nothing() -> None:
    heights = [float(rect.attrib["height"]) for rect in chart(1, 1_000_000).iter("rect")]
    assert heights[0] == 1


def test_titles_units_and_what_is_told_are_text() -> None:
    found = chart(1)
    assert "".join(found.find("h3").itertext()) == "A & B <u>"  # type: ignore[union-attr]
    assert [title.text for title in found.iter("title")] == ["<1>"]


def test_no_columns_are_no_chart() -> None:
    assert columns("x", [], write=str) == ""


def test_columns_of_nothing_stand_on_a_scale_all_the_same() -> None:
    assert len(list(chart(0, 0).iter("rect"))) == 2


def test_labels_do_not_run_into_each_other_or_repeat() -> None:
    ticks = ("a", "a", *(f"t{at}" for at in range(100)))
    texts = [text.text for text in chart(*([1.0] * 102), ticks=ticks).iter("text")]
    shown = [text for text in texts if text in ticks]
    assert 2 < len(shown) < 12
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(("share", "width"), [(0.5, 50), (2.0, 100), (-1.0, 0)])
def test_shares_stay_in_their_cell(share: float, width: float) -> None:
    track, bar = parsed(share_bar(share, label="<l>")).iter("rect")
    assert float(track.attrib["width"]) == 100
    assert float(bar.attrib["width"]) == width


@pytest.mark.parametrize(
    ("most", "step"), [(100, 25), (4, 1), (5, 2), (0.1, 0.025), (0, 1), (math.inf, 1), (math.nan, 1)]
)
def test_steps_are_round(most: float, step: float) -> None:
    assert tick_step(most) == pytest.approx(step)
