"""The account of a chaotic run: a run that went well passes, and each thing that must not happen is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.testing.chaos import Account, Letter, Stored
from tailrace.testing.chaos.notes import Note, Notebook, read_notes

TOPIC = "work"

GOOD = (
    "trying a, published a 0, trying b, published b 1, trying c, crashing c, trying d, published d 3,"
    "delivered a 100, acknowledging a, acknowledged a 150,"
    "delivered b 100, delivered b 200, delivered d 100, acknowledging d, crashing b, delivered c 300,"
    "acknowledging c, acknowledged c 350"
)
STORED = (
    Stored(id="a", offset=0),
    Stored(id="b", offset=1),
    Stored(id="c", offset=2),
    Stored(id="d", offset=3),
)
LETTERS = (Letter(id="b", origin=(TOPIC, 1), reason="refused", deliveries=2),)


def notes(text: str) -> list[Note]:
    """`kind id number` between commas."""
    found = []
    for line in text.split(","):
        kind, id, *number = line.split()
        found.append(Note(kind, id, int(number[0]) if number else -1))
    return found


def check(
    text: str = GOOD, stored: tuple[Stored, ...] = STORED, letters: tuple[Letter, ...] = LETTERS
) -> Account:
    account = Account(notes(text))
    account.check(stored, letters, topic=TOPIC)
    return account


def test_a_run_that_went_well_passes() -> None:
    account = check()
    assert account.published == {"a": 0, "b": 1, "d": 3}
    assert account.acknowledged == {"a": 150, "c": 350}
    assert account.delivered == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert account.unknown == {"d"}, "its acknowledgement may have arrived before its worker died"
    assert account.crashes == 2


def test_what_was_tried_and_not_confirmed_need_not_be_there() -> None:
    check(GOOD.replace("acknowledged c 350", "acknowledged c 350, trying e"))


@pytest.mark.parametrize(
    ("stored", "complaint"),
    [
        (STORED[1:], "confirmed and not in the topic: 1, such as a"),
        ((*STORED, Stored(id="a", offset=4)), "in the topic twice: 1, such as a"),
        ((*STORED, Stored(id="z", offset=4)), "in the topic and never published: 1, such as z"),
        ((Stored(id="a", offset=5), *STORED[1:]), "not at the offset that its publisher was told: 1"),
    ],
)
def test_a_topic_that_does_not_hold_what_was_promised_is_found(
    stored: tuple[Stored, ...], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(stored=stored)


def test_a_message_that_vanished_is_found() -> None:
    with pytest.raises(AssertionError, match="neither acknowledged nor a dead letter: 1, such as b"):
        check(letters=())


def test_an_acknowledgement_without_an_answer_counts_only_if_its_worker_died() -> None:
    with pytest.raises(AssertionError, match="neither acknowledged nor a dead letter: 1, such as d"):
        check(GOOD.replace("acknowledging d, ", ""))
    with pytest.raises(AssertionError, match="acknowledged, and nobody answered: 1, such as c"):
        check(
            GOOD.removesuffix(", acknowledged c 350").removesuffix("acknowledged c 350").rstrip().rstrip(",")
        )


@pytest.mark.parametrize("sent_after", [151, 5_000])
def test_a_delivery_after_a_confirmed_acknowledgement_is_found(sent_after: int) -> None:
    with pytest.raises(AssertionError, match="delivered again after its acknowledgement was confirmed: 1"):
        check(f"{GOOD}, delivered a {sent_after}")


@pytest.mark.parametrize("sent_after", [120, 150])
def test_a_delivery_that_may_have_been_sent_before_is_not(sent_after: int) -> None:
    check(f"{GOOD}, delivered a {sent_after}")


@pytest.mark.parametrize(
    ("letter", "complaint"),
    [
        (Letter(id="b", origin=("other", 1), reason="refused", deliveries=2), "unknown origin"),
        (Letter(id="b", origin=(TOPIC, 0), reason="refused", deliveries=2), "unknown origin"),
        (Letter(id="b", origin=(TOPIC, 1), reason="", deliveries=2), "without reason or count"),
        (Letter(id="b", origin=(TOPIC, 1), reason="refused", deliveries=0), "without reason or count"),
    ],
)
def test_a_dead_letter_that_does_not_tell_is_found(letter: Letter, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(letters=(letter,))


def test_whatever_a_process_reports_as_failed_is_found() -> None:
    with pytest.raises(AssertionError, match="broken"):
        check(f"{GOOD}, failed broken")


def test_notes_outlive_the_one_who_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    assert list(read_notes(path)) == []
    for life in range(2):
        notebook = Notebook(path)
        notebook.write("published", f"id with spaces {life}", life)
        notebook.write("trying", "x")
        notebook.close()
    assert list(read_notes(path)) == [
        Note("published", "id with spaces 0", 0),
        Note("trying", "x", -1),
        Note("published", "id with spaces 1", 1),
        Note("trying", "x", -1),
    ]
