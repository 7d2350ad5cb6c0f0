"""The console in a wheel and in a source archive: asked of the build backend itself, without building them.

A file that the program reads when it runs and that no pattern of pyproject.toml names is there in a checkout,
and missing for everybody who installs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CONSOLE = "src/tailrace/http/console"


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project as setuptools sees it."""
    setuptools = pytest.importorskip("setuptools", reason="setuptools builds the packages, and is not here")
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    (where,) = told["packages"]["find"]["where"]
    monkeypatch.chdir(ROOT)  # the patterns are of files below it
    return setuptools.Distribution(
        {
            "name": "tailrace",
            "script_name": "setup.py",
            "packages": setuptools.find_packages(where),
            "package_dir": {"": where},
            "package_data": told["package-data"],
        }
    )


def in_wheel(distribution: Any) -> set[str]:
    """The files that go with the modules."""
    command = distribution.get_command_obj("build_py")
    command.ensure_finalized()
    return {f"{folder}/{name}" for _, folder, _, names in command.data_files for name in names}


def in_archive(distribution: Any) -> set[str]:
    command = distribution.get_command_obj("sdist")
    command.ensure_finalized()
    command.filelist = pytest.importorskip("setuptools._distutils.filelist").FileList()
    command.add_defaults()
    command.read_template()  # MANIFEST.in, which may take something out again
    return set(command.filelist.files)


@pytest.mark.parametrize("files_of", [in_wheel, in_archive])
def test_the_whole_console_is_in_every_package(
    distribution: Any, files_of: Callable[[Any], set[str]]
) -> None:
    """With the licences of what is not ours."""
    there = {
        each.relative_to(ROOT).as_posix()
        for each in (ROOT / CONSOLE).rglob("*")
        if each.suffix in (".css", ".html", ".js", ".md", ".svg")
    }
    assert f"{CONSOLE}/index.html" in there
    assert there - files_of(distribution) == set()
