"""Figures of a node's health that need no node: trends of series, and what the machine says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.metrics import health
from tailrace.metrics.free_space import FreeSpace
from tailrace.metrics.health import Trend, read_machine, trend_of


@pytest.mark.parametrize(
    ("column", "trend"),
    [
        ([], None),
        ([None] * 100, None),
        ([1.0] * 12, None),  # 55 seconds
        ([float(value) for value in range(13)], Trend(before=0, now=12, span_s=60)),
        ([None, *map(float, range(13)), None], Trend(before=0, now=12, span_s=60)),
        ([float(value) for value in range(720)], Trend(before=659, now=719, span_s=300)),
    ],
)
def test_where_a_series_goes(column: list[float | None], trend: Trend | None) -> None:
    assert trend_of(column, interval_ms=5_000, span_ms=300_000) == trend


def test_a_trend_has_a_rate() -> None:
    assert Trend(before=100, now=40, span_s=60).per_s == -1


def test_the_machine_is_asked(tmp_path: Path) -> None:
    found = read_machine(FreeSpace(str(tmp_path)))
    assert found.disk_free_bytes is not None and found.disk_free_bytes > 0
    assert found.descriptors is not None and found.descriptors > 3
    assert found.memory_bytes_max is not None
    assert 0 < found.memory_bytes < found.memory_bytes_max


@pytest.mark.parametrize(("text", "limited"), [("4096\n", True), ("max\n", False), ("", False)])
def test_a_container_may_have_less_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, limited: bool
) -> None:
    (tmp_path / "memory.max").write_text(text)
    monkeypatch.setattr(health, "_CGROUP_LIMIT", tmp_path / "memory.max")
    assert (health._memory_bytes_max() == 4096) is limited
    monkeypatch.setattr(health, "_CGROUP_LIMIT", tmp_path / "absent")
    assert health._memory_bytes_max() != 4096
