"""How the program is called from the shell: with real files, a made-up PATH and working directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.server.program import program_name


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with .venv/bin/tailrace in it, and an empty PATH."""
    script = tmp_path / ".venv" / "bin" / "tailrace"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    return tmp_path


@pytest.mark.parametrize("started", [".venv/bin/tailrace", "{place}/.venv/bin/tailrace"])
def test_off_the_path_it_is_the_way_from_here(
    place: Path, monkeypatch: pytest.MonkeyPatch, started: str
) -> None:
    monkeypatch.setattr(sys, "argv", [started.format(place=place)])
    assert program_name() == ".venv/bin/tailrace"


def test_on_the_path_it_is_the_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place / ".venv" / "bin"))
    monkeypatch.setattr(sys, "argv", [str(place / ".venv/bin/tailrace")])
    assert program_name() == "tailrace"


def test_another_program_of_that_name_on_the_path_is_not_meant(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = place / "other" / "tailrace"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(sys, "argv", [".venv/bin/tailrace"])
    assert program_name() == ".venv/bin/tailrace"


def test_as_a_module_it_is_called_by_the_interpreter(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/tailrace/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(place / "bin" / "python"))
    assert program_name() == "bin/python -m tailrace"


def test_a_path_with_a_space_can_be_copied(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["my tools/tailrace"])
    assert program_name() == "'my tools/tailrace'"


def test_inside_another_program_it_is_the_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert program_name() == "tailrace"
