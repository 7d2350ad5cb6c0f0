"""When requests are due: on time, late, stalled, and without any rate."""

from __future__ import annotations

import pytest
from bench.soak.pace import Pace


def test_requests_are_due_at_even_distances() -> None:
    pace = Pace(per_s=10, began_s=100.0)

    taken = [pace.take(100.0 + at / 20, room=5) for at in range(8)]

    assert taken == [1, 0, 1, 0, 1, 0, 1, 0]


def test_the_next_time_is_told() -> None:
    pace = Pace(per_s=10, began_s=100.0)

    assert pace.next_s() == 100.0
    pace.take(100.0, room=5)
    assert pace.next_s() == pytest.approx(100.1)


def test_who_comes_at_the_time_that_was_told_is_not_too_early() -> None:
    pace = Pace(per_s=333, began_s=1_000_000.1)

    taken = [pace.take(pace.next_s() or 0.0, room=5) for _ in range(1000)]

    assert taken == [1] * 1000


def test_nothing_is_due_before_the_beginning() -> None:
    assert Pace(per_s=1000, began_s=100.0).take(99.9, room=5) == 0


def test_what_did_not_fit_is_sent_later() -> None:
    pace = Pace(per_s=10, began_s=0.0)

    assert pace.take(0.5, room=2) == 2
    assert pace.take(0.5, room=0) == 0
    assert pace.take(0.5, room=9) == 4
    assert pace.taken == 6


def test_over_time_no_request_is_lost_or_added() -> None:
    pace = Pace(per_s=333, began_s=0.0)

    total = sum(pace.take(at * 0.0017, room=4) for at in range(10_000))

    assert abs(total - 333 * 17) <= 4
    assert pace.forgiven == 0


def test_a_stall_is_paid_back_for_at_most_a_second() -> None:
    pace = Pace(per_s=10, began_s=0.0, debt_s=1.0)

    assert pace.take(60.0, room=1000) == 10
    assert pace.forgiven == 591
    assert pace.take(60.05, room=1000) == 0
    assert pace.take(60.1, room=1000) == 1


def test_a_slow_rate_keeps_a_debt_of_one() -> None:
    pace = Pace(per_s=0.1, began_s=0.0, debt_s=1.0)

    assert pace.take(60.0, room=5) == 1


def test_without_a_rate_all_that_fits_is_due() -> None:
    pace = Pace(per_s=None, began_s=0.0)

    assert [pace.take(0.0, room=room) for room in (5, 0, 2)] == [5, 0, 2]
    assert pace.next_s() is None


@pytest.mark.parametrize("per_s", [0, -1])
def test_a_rate_that_is_none_is_refused(per_s: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Pace(per_s=per_s, began_s=0.0)
