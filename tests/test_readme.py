"""README as a newcomer follows it: its example and its commands are run, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command line of README, without the remark at its end."""
    return [
        line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines() if line.strip()
    ]


def tailrace_arguments() -> list[list[str]]:
    return [shlex.split(line)[1:] for line in commands() if line.startswith(".venv/bin/tailrace ")]


def run_python(*args: str, cwd: Path) -> str:
    """What this interpreter prints; README's .venv is the one that the tests run in."""
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(args)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def run_example(cwd: Path) -> str:
    (example,) = blocks("python")
    (cwd / "hello.py").write_text(example, encoding="utf-8")
    return run_python("-W", "error", "hello.py", cwd=cwd)


def test_the_example_prints_what_readme_says(tmp_path: Path) -> None:
    (printed,) = blocks("text")
    assert run_example(tmp_path) == printed


def test_the_log_commands_work_on_what_the_example_left(tmp_path: Path) -> None:
    run_example(tmp_path)
    arguments = [args for args in tailrace_arguments() if args[0] == "log"]
    assert [args[1] for args in arguments] == ["inspect", "verify"]
    for args in arguments:
        assert run_python("-m", "tailrace", *args, cwd=tmp_path).strip() != ""


@pytest.mark.slow
def test_the_benchmark_command_works(tmp_path: Path) -> None:
    (args,) = [args for args in tailrace_arguments() if args[0] == "bench"]
    assert run_python("-m", "tailrace", *args, cwd=tmp_path).strip() != ""


def test_every_command_of_readme_is_known_to_these_tests() -> None:
    known = re.compile(r"make [a-z-]+$|\.venv/bin/tailrace (log|bench) ")
    assert commands() != []
    assert [line for line in commands() if not known.match(line)] == []


def test_make_targets_named_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{document.name} names make targets that do not exist: {named - targets}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []
