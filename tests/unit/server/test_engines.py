"""The registry of storage engines: what each says of itself, and that no other module asks for names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tailrace
from tailrace.server.config import ServerConfig
from tailrace.server.engines import ENGINES

_SOURCES = Path(tailrace.__file__).parent
_COMPARISON = re.compile(r"""engine["\]]*\s*(==|!=|in)\s*["'(]""")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_describes_itself(name: str) -> None:
    engine = ENGINES[name]
    facts = engine.describe(ServerConfig(engine=name, data_dir=Path("d")))
    assert (facts.name, engine.name) == (name, name)
    assert facts.place and engine.doc
    assert all(setting.key.startswith(f"{name}.") for setting in engine.settings())


def test_an_engine_without_files_names_no_directory() -> None:
    facts = {name: each.describe(ServerConfig(engine=name)) for name, each in ENGINES.items()}
    assert facts["segment"].directory == "tailrace-data" and facts["segment"].durable
    assert facts["memory"].directory == "" and not facts["memory"].durable


def test_only_the_registry_knows_engines_by_name() -> None:
    found = [
        f"{path.relative_to(_SOURCES)}:{number}"
        for path in _SOURCES.rglob("*.py")
        if "engines" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if _COMPARISON.search(line)
    ]
    assert found == []
