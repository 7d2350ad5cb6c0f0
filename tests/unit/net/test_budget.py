"""The budget for request bytes: counted, queued for in order, never leaked. Plain calls."""

from __future__ import annotations

import pytest

from tailrace.net import RequestBudget


def test_takes_while_there_is_room_and_refuses_past_it() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(60) and budget.take_nowait(40)
    assert not budget.take_nowait(1)
    budget.give(40)
    assert budget.take_nowait(40)


def test_grants_in_the_order_of_asking() -> None:
    budget = RequestBudget(100)
    granted: list[str] = []
    assert budget.take_nowait(100)
    budget.wait(80, lambda: granted.append("large"))
    budget.wait(10, lambda: granted.append("small"))
    budget.give(50)
    assert granted == []  # the small one does not overtake
    budget.give(50)
    assert granted == ["large", "small"] and budget.used == 90


def test_nobody_takes_past_those_who_wait() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(90)
    budget.wait(50, lambda: None)
    assert budget.exhausted and not budget.take_nowait(5)


def test_a_frame_larger_than_the_budget_is_granted_when_it_is_alone() -> None:
    budget = RequestBudget(100)
    granted: list[int] = []
    assert budget.take_nowait(1)
    budget.wait(500, lambda: granted.append(500))
    assert granted == []
    budget.give(1)
    assert granted == [500] and budget.used == 500
    budget.give(500)
    assert budget.take_nowait(500)


def test_a_withdrawn_claim_lets_the_next_one_through() -> None:
    budget = RequestBudget(100)
    granted: list[str] = []
    assert budget.take_nowait(50)
    first = budget.wait(80, lambda: granted.append("first"))
    budget.wait(50, lambda: granted.append("second"))
    budget.withdraw(first)
    assert granted == ["second"] and budget.used == 100 and not budget.exhausted


def test_a_claim_withdrawn_after_it_was_granted_gives_its_bytes_back() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(100)
    claim = budget.wait(80, lambda: None)
    budget.give(100)
    assert budget.used == 80
    budget.withdraw(claim)
    assert budget.used == 0


def test_giving_back_more_than_was_taken_is_a_bug() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(10)
    with pytest.raises(AssertionError, match="given back"):
        budget.give(11)


def test_small_requests_have_a_reserve_and_need_not_wait_for_large_ones() -> None:
    budget = RequestBudget(100, reserve_bytes=20, small_bytes=10)
    granted: list[str] = []
    assert budget.take_nowait(95)
    budget.wait(50, lambda: granted.append("large"))
    assert not budget.take_nowait(11)
    assert budget.take_nowait(10)
    assert budget.take_nowait(10)
    assert not budget.take_nowait(10), "the reserve has an end"
    assert granted == []
    budget.give(95)
    assert granted == ["large"] and budget.used == 70
