"""ARCHITECTURE.md names modules and functions: each of them must exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
WHO_DECIDES = re.search(r"## Who decides\n(.*?)\n## ", TEXT, re.DOTALL)
WAYS = re.findall(r"^\| \d+ \| `(\w+)` \| `([\w/]+\.py): (\w+)`", TEXT, re.MULTILINE)


def decisions() -> list[str]:
    assert WHO_DECIDES is not None
    return re.findall(r"`(tailrace[\w.]+:[\w.]+)`", WHO_DECIDES[1])


@pytest.mark.parametrize("name", decisions())
def test_who_decides_exists(name: str) -> None:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_the_table_of_who_decides_has_its_rows() -> None:
    assert len(decisions()) >= 7


@pytest.mark.parametrize(("name", "path", "function"), WAYS)
def test_each_step_of_a_way_exists(name: str, path: str, function: str) -> None:
    module = importlib.import_module("tailrace." + path.removesuffix(".py").replace("/", "."))
    assert callable(getattr(getattr(module, name), function))


def test_a_produce_passes_seven_objects_and_an_ack_twelve() -> None:
    assert len(WAYS) == 7 + 12
