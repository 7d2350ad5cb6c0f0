"""What lakes miss, out of what runs tell: the newest word of each lake and topic; nonsense is passed over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tailrace.metrics.runs import missing_offsets
from tailrace.wire.json.run_record import RunRecord, new_run


def run(
    missing: Any, *, to: Any = "./lake", topics: tuple[str, ...] = ("orders",), pipeline: str = "archive"
) -> RunRecord:
    progress = {"offsets": {topic: {"0": 5} for topic in topics}, "missing_offsets": missing}
    made = new_run(pipeline=pipeline, name=pipeline, config={"to": to})
    return msgspec.structs.replace(made, progress=progress)


def test_the_newest_run_of_a_lake_and_a_topic_counts() -> None:
    newest_first = [
        run({"orders": {"0": 8, "3": 1}}),
        run({"orders": {"0": 5}, "clicks": {"1": 2}}, topics=("orders", "clicks")),
        run({"orders": {"0": 7}}, to="./other"),
    ]
    assert missing_offsets(newest_first) == {
        ("./lake", "orders", "0"): 8,
        ("./lake", "orders", "3"): 1,
        ("./lake", "clicks", "1"): 2,
        ("./other", "orders", "0"): 7,
    }


def test_a_lake_that_was_made_anew_misses_nothing_though_an_older_run_says_so() -> None:
    assert missing_offsets([run({}), run({"orders": {"0": 8}})]) == {}


def test_a_run_that_has_not_told_yet_leaves_the_word_to_the_one_before() -> None:
    silent = msgspec.structs.replace(run({}), progress=None)
    assert missing_offsets([silent, run({"orders": {"0": 8}})]) == {("./lake", "orders", "0"): 8}


@pytest.mark.parametrize(
    "told",
    [
        run(None),
        run([1]),
        run({"orders": 7}),
        run({"orders": {"zero": 7}}),
        run({"orders": {"0": "many"}}),
        run({"orders": {"0": -7}}),
        run({"orders": {"0": 7}}, to=None),
        run({"orders": {"0": 7}}, pipeline="sql"),
    ],
)
def test_what_makes_no_sense_is_passed_over(told: RunRecord) -> None:
    assert missing_offsets([told]) == {}
