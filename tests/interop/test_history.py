"""The checker of the kill tests notices what it is there to notice."""

from __future__ import annotations

import pytest
from tests.interop.history import History


def told(*rows: tuple[int, bytes]) -> History:
    """A history with these acknowledged in partition 0."""
    history = History()
    for offset, value in rows:
        history.acknowledge(partition=0, offset=offset, value=value)
    return history


def test_a_faithful_log_passes() -> None:
    history = told((0, b"a 0"), (1, b"b 0"), (2, b"a 1"))
    history.see(partition=0, offset=1, value=b"b 0")
    history.see(partition=0, offset=1, value=b"b 0")
    history.check({0: [(0, b"a 0"), (1, b"b 0"), (2, b"a 1")]})


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(0, b"a 0")], "lost"),
        ([(0, b"a 0"), (1, b"b 7")], "changed"),
        ([(0, b"a 0"), (1, b"a 1"), (2, b"a 1")], "twice"),
        ([(0, b"a 0"), (1, b"a 1"), (2, b"a 3"), (3, b"a 2")], "out of order"),
    ],
)
def test_a_log_that_is_not_fails(rows: list[tuple[int, bytes]], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        told((0, b"a 0"), (1, b"a 1")).check({0: rows})


def test_a_reader_that_saw_what_is_not_there_fails() -> None:
    history = History()
    history.see(partition=0, offset=0, value=b"a 0")
    with pytest.raises(AssertionError, match="1 read records are lost"):
        history.check({0: []})


def test_two_values_at_one_offset_fail() -> None:
    history = told((0, b"a 0"))
    history.acknowledge(partition=0, offset=0, value=b"b 0")
    with pytest.raises(AssertionError, match="acknowledged twice"):
        history.check({0: [(0, b"a 0")]})
