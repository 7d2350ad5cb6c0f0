"""The protocol of the exactly-once sink: every row once whatever is killed, and every rule is needed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.property.exactly_once import KAFKA, QUICK, RULES, TWO_PHASE, Violation, World

KINDS = ("stream", "batch")
CLUSTERS = (TWO_PHASE, KAFKA, QUICK)

# By which histories each rule that is left out is found: kind, cluster, and how many are looked at.
BROKEN = {
    "attempts_have_ids": ("stream", QUICK, 30),
    "runs_have_ids": ("stream", QUICK, 60),
    "driver_fences": ("stream", TWO_PHASE, 60),
    "decision_is_transactional": ("stream", TWO_PHASE, 30),
    "decide_before_end": ("stream", TWO_PHASE, 30),
    "one_decision": ("stream", TWO_PHASE, 30),
    "redrive": ("stream", TWO_PHASE, 30),
    "ended_by_identity": ("stream", TWO_PHASE, 100),
    "listed_before_deciding": ("stream", QUICK, 200),
    "only_decider_aborts": ("stream", TWO_PHASE, 100),
    "winners_are_prepared": ("stream", TWO_PHASE, 60),
    "refuses_init": ("stream", TWO_PHASE, 150),
    "no_timeout": ("batch", TWO_PHASE, 150),
    "fenced_is_ended": ("stream", TWO_PHASE, 100),
    "loss_is_told": ("stream", KAFKA, 60),
    "runs_are_finished": ("batch", TWO_PHASE, 200),
}


def explore(kind: str, cluster: str, seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, kind, cluster)
        world.run()
        happened += world.happened
    return happened


def finds(rule: str, kind: str, cluster: str, histories: int) -> bool:
    for seed in range(histories):
        try:
            World(seed, kind, cluster, [rule]).run()
        except Violation:
            return True
    return False


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_there_once_whatever_is_killed(kind: str, cluster: str) -> None:
    happened = explore(kind, cluster, range(60))
    assert happened["kills"] > 100 and happened["decisions"] > 100 and happened["aborts"] > 100
    assert (happened["losses"] > 0) == (cluster == KAFKA)


@pytest.mark.heavy
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_in_many_histories(kind: str, cluster: str) -> None:
    explore(kind, cluster, range(1000, 6000))


def test_every_rule_is_left_out_once() -> None:
    assert BROKEN.keys() == RULES.keys()


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_left_out_is_noticed(rule: str) -> None:
    assert finds(rule, *BROKEN[rule])
