"""The Makefile and its scripts, without installing anything: targets, help, complaints of `make install`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = [
    "all",
    "bench",
    "bench-quick",
    "build",
    "check",
    "clean",
    "fmt",
    "help",
    "install",
    "soak",
    "test",
    "test-full",
    "up",
    "vet",
]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*args: str) -> str:
    # These tests may themselves run under make, whose own flags are no business of this one.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_the_target_exists_and_help_says_what_it_is_for(target: str) -> None:
    assert make("--dry-run", target)
    assert re.search(rf"^  make {target} +\w", make(), re.MULTILINE)


def test_every_target_is_phony() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_check_holds_everything_the_gate_promises() -> None:
    steps = make("--dry-run", "check")
    for step in ("ruff format --check", "ruff check", "mypy", "lint-imports", "not heavy and not slow"):
        assert step in steps


def test_test_leaves_out_only_the_heavy_ones() -> None:
    assert 'scripts/test -m "not heavy"\n' in make("--dry-run", "test")
    assert "-m" not in make("--dry-run", "test-full").split("scripts/test")[1]


@pytest.mark.parametrize(
    "script",
    [".ci/run", "scripts/install", "scripts/install-packages", "scripts/fetch-promtool", "scripts/test"],
)
def test_scripts_are_executable_and_stop_at_the_first_failure(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert "\nset -euo pipefail\n" in path.read_text(encoding="utf-8")


def install_with(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/install in a folder of its own, with a shell script in the place of Python."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "install", scripts)
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    fake.chmod(0o755)
    return subprocess.run(
        [scripts / "install"],
        env={**os.environ, "PYTHON": str(fake)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_install_says_what_to_do_where_venv_is_missing(tmp_path: Path) -> None:
    done = install_with(tmp_path, 'case "$*" in *ensurepip*) exit 1;; esac')
    assert done.returncode == 1
    assert "has no venv module" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_install_refuses_an_old_python(tmp_path: Path) -> None:
    old = f"""
        [ "$1" = --version ] && echo Python 3.10.9 && exit
        exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 9); $2"
    """
    done = install_with(tmp_path, old)
    assert done.returncode == 1
    assert "is not Python 3.11 or newer (Python 3.10.9)" in done.stderr
    assert not (tmp_path / ".venv").exists()


def install_packages_with(tmp_path: Path, *, user: int, refused: str) -> tuple[str, list[str]]:
    """Run scripts/install-packages where no program is; what it says, and what it asks apt-get for."""
    programs = {
        "id": f"echo {user}",
        "apt-get": f'echo "$*" >>{tmp_path}/asked; case "$*" in *{refused}*) exit 100;; esac',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "scripts" / "install-packages").read_text(encoding="utf-8")
    done = subprocess.run(
        ["/bin/bash", "-c", script.replace(":/usr/sbin:/sbin", "")],
        env={**os.environ, "PATH": str(tmp_path), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    asked = tmp_path / "asked"
    return done.stdout, asked.read_text(encoding="utf-8").splitlines() if asked.exists() else []


def test_packages_are_named_and_not_installed_where_we_are_not_root(tmp_path: Path) -> None:
    said, asked = install_packages_with(tmp_path, user=1000, refused="nothing")
    assert "not here: e2fsprogs mount strace kcat nodejs npm" in said
    assert "sudo apt-get install e2fsprogs" in said
    assert asked == []


def test_all_packages_are_installed_at_once_where_we_are_root(tmp_path: Path) -> None:
    said, asked = install_packages_with(tmp_path, user=0, refused="nothing")
    assert "installing e2fsprogs mount strace kcat nodejs npm" in said
    assert "could not" not in said
    assert ["update" in line for line in asked] == [True, False]


def test_a_package_that_cannot_be_had_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    said, asked = install_packages_with(tmp_path, user=0, refused="kcat")
    assert re.findall(r"could not install (\S+);", said) == ["kcat"]
    one_by_one = [line.split()[-1] for line in asked[2:]]
    assert {"e2fsprogs", "mount", "strace", "nodejs", "npm"} <= set(one_by_one)
