"""Who moves what is visible, and who asks a partition for its log: the sources are read for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace

SOURCES = Path(tailrace.__file__).parent
PACKAGES = ["broker", "http", "kafka", "metrics", "native", "server"]

_OFFSETS = frozenset({"high_watermark", "last_stable_offset"})
_MOVERS = [("broker/partition.py", "__init__"), ("broker/partition.py", "_log_moved")]
_ASK_THE_LOG = ["broker/archive_reach.py"]  # tells the log how far archives are, which moves nothing visible


def moves(source: str) -> Iterator[str]:
    """The functions that assign an offset which ends reads."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and node.attr in _OFFSETS
                ):
                    yield function.name
                    break


def uses_of_log(source: str) -> Iterator[int]:
    """Lines on which a partition is asked for its log; `settings.log` are the settings of one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr == "log":
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name != "settings":
                yield node.lineno


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((SOURCES / package).rglob("*.py")):
            yield path.relative_to(SOURCES).as_posix(), path.read_text()


def test_only_the_partition_moves_what_is_visible() -> None:
    assert [(path, function) for path, source in sources() for function in moves(source)] == _MOVERS


def test_everything_asks_the_partition_and_not_its_log() -> None:
    found = [f"{path}:{line}" for path, source in sources() for line in uses_of_log(source)]
    assert [each for each in found if each.partition(":")[0] not in _ASK_THE_LOG] == []


@pytest.mark.parametrize("source", ["partition.log", "self._partition.log.end_offset", "find().log"])
def test_a_use_of_the_log_is_found(source: str) -> None:
    assert list(uses_of_log(source)) == [1]


def test_a_move_is_found() -> None:
    assert list(moves("def f(p):\n    p.high_watermark += 1")) == ["f"]
    assert list(moves("def f(p):\n    p.high_watermark, x = 1, 2")) == ["f"]
    assert list(moves("def f(p):\n    return p.high_watermark")) == []
