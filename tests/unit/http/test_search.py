"""What is looked for among records, by reads and tails alike."""

from __future__ import annotations

import pytest

from tailrace.http.search import Search
from tailrace.records import Record


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value, ())


@pytest.mark.parametrize(
    ("search", "key", "value", "is_admitted"),
    [
        (Search(), None, None, True),
        (Search(key=b"k"), b"k", b"v", True),
        (Search(key=b"k"), b"kk", b"v", False),
        (Search(key=b"k"), None, b"k", False),
        (Search(key=b""), b"", b"v", True),
        (Search(key=b""), None, b"v", False),
        (Search(text=b"t"), b"text", None, True),
        (Search(text=b"t"), None, b"a text", True),
        (Search(text=b"t"), b"k", b"v", False),
        (Search(text=b"t"), None, None, False),
        (Search(text=b""), None, None, True),
        (Search(text=b"t", key=b"k"), b"k", b"text", True),
        (Search(text=b"t", key=b"k"), b"k", b"v", False),
        (Search(text=b"t", key=b"k"), b"t", b"text", False),
    ],
)
def test_what_is_looked_for(
    search: Search, key: bytes | None, value: bytes | None, is_admitted: bool
) -> None:
    assert search.admits(record(key, value)) is is_admitted


@pytest.mark.parametrize(
    ("search", "is_open"),
    [
        (Search(), True),
        (Search(text=b""), True),
        (Search(text=b"t"), False),
        (Search(key=b""), False),
    ],
)
def test_a_search_that_says_nothing_is_open(search: Search, is_open: bool) -> None:
    assert search.is_open is is_open
