"""Processes that make load: told their job, heard in time, and gone when we are done with them."""

from __future__ import annotations

import pytest
from bench.child import Child, ask_child

from tailrace.bench.wire import LoadError
from tailrace.bench.wire.accounting import tree_usage


def test_a_child_that_fails_is_an_error_with_its_last_words() -> None:
    with pytest.raises(LoadError, match="No module named"):
        ask_child("bench.no_such_module", {}, timeout_s=60)


def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(LoadError, match="took longer"):
        ask_child("timeit", {}, timeout_s=0.05)


def test_a_child_that_ends_early_is_an_error_with_its_last_words() -> None:
    with Child("bench.no_such_module", {}) as child, pytest.raises(LoadError, match="No module named"):
        child.hear(timeout_s=60)


def test_a_child_that_is_told_something_after_its_end_is_still_put_away() -> None:
    with Child("bench.no_such_module", {}) as child:
        child._process.wait(60)
        child.tell("go")

    assert child._process.returncode


def test_a_child_that_waits_ends_with_us() -> None:
    with Child("bench.client", {"role": "produce"}) as child:
        pid = child._process.pid

    assert tree_usage(pid) is None


def test_a_child_that_says_nothing_is_an_error() -> None:
    with Child("code", {}) as child, pytest.raises(LoadError, match="said nothing"):
        child.hear(timeout_s=0.01)
