"""Where a name lives in an internal topic: Java's hash, known values of it, and its one odd case."""

from __future__ import annotations

import pytest

from tailrace.broker.internal import java_hash, partition_for

FOX = "The quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize(
    ("text", "hash_"),
    [("", 0), ("a", 97), ("hello", 99162322), (FOX, -609428141), ("\U0001f600", 1772899)],
)
def test_the_hash_is_javas(text: str, hash_: int) -> None:
    assert java_hash(text) == hash_


def test_a_name_lives_in_the_partition_of_its_hash() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for(FOX, 50) == 609428141 % 50


def test_the_one_hash_without_an_absolute_value_lives_in_the_first_partition() -> None:
    text = "polygenelubricants"
    assert java_hash(text) == -(1 << 31)
    assert partition_for(text, 50) == 0
