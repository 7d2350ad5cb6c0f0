"""Ctrl-C while a load runs: told where nothing is half done, and at once to whoever presses twice."""

from __future__ import annotations

import signal
import threading

import pytest

from tailrace.bench.wire.interrupt import Interrupted, listening


def test_the_first_press_is_found_when_somebody_looks() -> None:
    with listening() as ctrl_c:
        ctrl_c.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            ctrl_c.check()


def test_the_second_press_is_the_usual_exception() -> None:
    with listening():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_as_before_at_the_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    with listening():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_thread_has_no_ctrl_c_to_take() -> None:
    seen: list[object] = []

    def work() -> None:
        with listening() as ctrl_c:
            ctrl_c.check()
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert seen == [before]
