"""The machine's clock, while somebody sets it: time functions are replaced by numbers."""

from __future__ import annotations

import time

import pytest

from tailrace.runtime import SystemClock

START_MS = 1_750_000_000_000


class Hands:
    """The two times that the system clock reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = START_MS * 1_000_000
        self.passed_s = 500.0
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ns)
        monkeypatch.setattr(time, "monotonic", lambda: self.passed_s)

    def let_pass(self, seconds: float) -> None:
        self.passed_s += seconds
        self.now_ns += int(seconds * 1e9)

    def set_by(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    return Hands(monkeypatch)


def test_time_of_day_follows_the_machine(hands: Hands) -> None:
    clock = SystemClock()
    assert clock.now_ms() == START_MS
    hands.set_by(-3600)
    assert clock.now_ms() == START_MS - 3_600_000


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_steady_time_does_not_jump(hands: Hands, jump_s: float) -> None:
    clock = SystemClock()
    hands.let_pass(2.5)
    hands.set_by(jump_s)
    assert clock.steady_ms() == START_MS + 2500
    hands.let_pass(0.25)
    assert clock.steady_ms() == START_MS + 2750


def test_steady_time_begins_at_the_time_of_day(hands: Hands) -> None:
    hands.set_by(1000)
    assert SystemClock().steady_ms() == START_MS + 1_000_000


def test_monotonic_measures_what_passed(hands: Hands) -> None:
    clock = SystemClock()
    before = clock.monotonic()
    hands.set_by(-50)
    hands.let_pass(1.5)
    assert clock.monotonic() - before == 1.5
