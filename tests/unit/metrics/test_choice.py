"""Which of too many are shown: by activity, within the room, and steadily from one look to the next."""

from __future__ import annotations

from tailrace.metrics.choice import Candidate, Choice


def of(**activity: int) -> dict[str, Candidate]:
    return {name: Candidate(activity=count) for name, count in activity.items()}


def test_all_are_shown_where_there_is_room() -> None:
    assert Choice().choose(of(a=0, b=0), series_max=2) == {"a", "b"}


def test_the_most_active_are_shown_where_there_is_not() -> None:
    assert Choice().choose(of(a=1, b=9, c=5), series_max=2) == {"b", "c"}


def test_what_was_shown_stays_shown_however_active_others_become() -> None:
    choice = Choice()
    choice.choose(of(a=1, b=9, c=5), series_max=2)
    assert choice.choose(of(a=1000, b=9, c=5), series_max=2) == {"b", "c"}


def test_what_is_gone_makes_room_for_the_next() -> None:
    choice = Choice()
    choice.choose(of(a=1, b=9, c=5), series_max=2)
    assert choice.choose(of(a=1, c=5), series_max=2) == {"a", "c"}


def test_one_that_does_not_fit_whole_is_left_out_and_smaller_ones_are_not() -> None:
    candidates = {
        "huge": Candidate(cost=100, activity=9),
        "small": Candidate(cost=4, activity=1),
        "other": Candidate(cost=7, activity=2),
    }
    assert Choice().choose(candidates, series_max=10) == {"other"}
    assert Choice().choose(candidates, series_max=11) == {"other", "small"}


def test_one_that_grew_past_the_room_is_left_out() -> None:
    choice = Choice()
    assert choice.choose({"a": Candidate(cost=5)}, series_max=10) == {"a"}
    assert choice.choose({"a": Candidate(cost=11)}, series_max=10) == set()
