"""The fake clock: it implements the port, and moves only when it is told to."""

from __future__ import annotations

import pytest

from tailrace.runtime import Clock
from tailrace.testing import FakeClock


def test_time_passes_on_all_three() -> None:
    fake = FakeClock(now_ms=5000)
    clock: Clock = fake
    before = clock.monotonic()
    fake.advance(1500)
    assert (clock.now_ms(), clock.steady_ms()) == (6500, 6500)
    assert clock.monotonic() - before == 1.5


def test_setting_it_back_moves_the_time_of_day_alone() -> None:
    fake = FakeClock(now_ms=5000)
    fake.set_back(2000)
    assert (fake.now_ms(), fake.steady_ms(), fake.monotonic()) == (3000, 5000, 0.0)
    fake.set_back(-4000)
    assert (fake.now_ms(), fake.steady_ms()) == (7000, 5000)


def test_time_never_passes_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)
