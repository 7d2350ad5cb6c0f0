"""setup.py with a setuptools that only listens: which compiled modules a build has."""

from __future__ import annotations

import runpy
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.document import ROOT

RECORDS = "tailrace.records._compiled"
CODEC = "tailrace.spark.codec._compiled"


def extensions(monkeypatch: pytest.MonkeyPatch, build: str | None) -> list[SimpleNamespace]:
    """Those that setup.py declares with TAILRACE_BUILD as given."""
    declared: list[SimpleNamespace] = []

    def extension(name: str, sources: list[str], **options: Any) -> SimpleNamespace:
        return SimpleNamespace(name=name, sources=sources, options=options)

    listening = SimpleNamespace(Extension=extension, setup=lambda ext_modules: declared.extend(ext_modules))
    monkeypatch.setitem(sys.modules, "setuptools", listening)
    if build is None:
        monkeypatch.delenv("TAILRACE_BUILD", raising=False)
    else:
        monkeypatch.setenv("TAILRACE_BUILD", build)
    runpy.run_path(str(ROOT / "setup.py"))
    return declared


@pytest.mark.parametrize(
    ("build", "names"), [(None, [RECORDS, CODEC]), ("all", [RECORDS, CODEC]), ("core", [RECORDS])]
)
def test_a_build_has_all_compiled_modules_unless_the_core_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, build: str | None, names: list[str]
) -> None:
    assert [each.name for each in extensions(monkeypatch, build)] == names


def test_every_compiled_module_is_optional_and_has_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in extensions(monkeypatch, None):
        assert each.options["optional"]
        assert all((ROOT / source).is_file() for source in each.sources)


def test_every_cython_source_is_a_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {source for each in extensions(monkeypatch, None) for source in each.sources}
    assert declared == {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.pyx")}


def test_another_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="TAILRACE_BUILD=cores is not known"):
        extensions(monkeypatch, "cores")
