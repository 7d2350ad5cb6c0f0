"""Listeners get the broker's objects through the gate: their sources are read for any other way to a broker.

The import contracts in pyproject.toml keep the package `tailrace.broker` out of the listeners. This test
finds what an import cannot tell: an attribute, a variable or a parameter that is the broker.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace

SOURCES = Path(tailrace.__file__).parent
LISTENERS = ["http", "kafka", "native"]

_NAMES = frozenset({"broker", "_broker"})


def uses_of_broker(source: str) -> Iterator[tuple[int, str]]:
    """Lines on which a broker is reached, and how."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name) if name in _NAMES and not _is_module(node):
                yield node.lineno, f".{name}"
            case ast.Name(id=name) | ast.arg(arg=name) if name in _NAMES:
                yield node.lineno, name
            case ast.keyword(arg=str(name)) if name in _NAMES:
                yield node.value.lineno, f"{name}="
            case ast.alias(name="Broker"):
                yield node.lineno, "import Broker"


def _is_module(node: ast.Attribute) -> bool:
    """Whether it is `tailrace.broker`, the package."""
    return isinstance(node.value, ast.Name) and node.value.id == "tailrace"


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_listener_reaches_no_broker(listener: str) -> None:
    files = sorted((SOURCES / listener).rglob("*.py"))
    assert files
    found = [
        f"{path.relative_to(SOURCES.parent)}:{line}: {what}"
        for path in files
        for line, what in sorted(uses_of_broker(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "service.broker.topics",
        "self._broker",
        "observed.broker",
        "broker = find()",
        "def serve(broker): ...",
        "def serve(*, broker: object): ...",
        "lambda broker: 1",
        "for broker in brokers: ...",
        "Observed(broker=it)",
        "from tailrace.broker.broker import Broker",
        "async def f():\n    async with open() as broker: ...",
    ],
)
def test_a_broker_is_found(source: str) -> None:
    assert list(uses_of_broker(source))


@pytest.mark.parametrize(
    "source",
    [
        "from tailrace.broker.gate import Gate",
        "import tailrace.broker.gate",
        "tailrace.broker.gate.Gate",
        "kafka_broker_id = 1",
        "'the broker'",
        "reply.brokers",
    ],
)
def test_what_only_sounds_like_it_is_not(source: str) -> None:
    assert list(uses_of_broker(source)) == []
