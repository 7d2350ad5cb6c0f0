"""Event ids as an inverse pair, and what is no id."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.http.error import HttpError
from tailrace.http.live.entry import NAMED_PARTITIONS_MAX, Filter, read_event_id, write_shown
from tailrace.records import Record

MARK = "c53e3dad062d"
OFFSETS = st.integers(0, 2**63 - 1)
LAST = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), max_size=NAMED_PARTITIONS_MAX)


@given(LAST, st.integers(0, 2**31 - 1), OFFSETS)
def test_an_id_says_what_was_shown(last: dict[int, int], partition: int, offset: int) -> None:
    last[partition] = offset
    shown = write_shown(partition, offset, last)
    if len(last) > NAMED_PARTITIONS_MAX:
        assert shown == b""
    else:
        assert shown.startswith(b"%d:%d" % (partition, offset))
        assert read_event_id(f"{MARK}/{shown.decode()}") == (MARK, last)


@given(st.text(max_size=40))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    with suppress(HttpError):
        read_event_id(text)


@pytest.mark.parametrize(
    ("filter", "key", "value", "admitted"),
    [
        (Filter(), None, None, True),
        (Filter(key=b"k"), b"k", b"v", True),
        (Filter(key=b"k"), b"kk", b"v", False),
        (Filter(key=b"k"), None, b"k", False),
        (Filter(key=b""), b"", b"v", True),
        (Filter(key=b""), None, b"v", False),
        (Filter(text=b"t"), b"text", None, True),
        (Filter(text=b"t"), None, b"a text", True),
        (Filter(text=b"t"), b"k", b"v", False),
        (Filter(text=b"t"), None, None, False),
        (Filter(text=b"t", key=b"k"), b"k", b"v", False),
    ],
)
def test_a_filter_looks_at_key_and_value(
    filter: Filter, key: bytes | None, value: bytes | None, admitted: bool
) -> None:
    assert filter.admits(Record(0, 0, key, value)) is admitted
