"""Sizes as people read them."""

from __future__ import annotations

import pytest

from tailrace.model.text import size_of


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (9_900, "9.7 KiB"),
        (61_000, "59.6 KiB"),
        (64 << 20, "64 MiB"),
        (150.4 * 2**20, "150 MiB"),
        (100e9, "93.1 GiB"),
        (2**70, "1048576 PiB"),
    ],
)
def test_sizes_are_powers_of_1024(count: float, text: str) -> None:
    assert size_of(count) == text
