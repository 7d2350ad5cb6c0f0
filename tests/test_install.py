"""scripts/install with a pip that notes what it is asked for: levels, stamps, what is said, interruptions.

The Python of these tests is a virtual environment that has this pip. The script runs in a directory that has
pyproject.toml and setup.py of this repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.document import ROOT

DEADLINE_S = 60
PIP = """
import json, os, shutil, sys, sysconfig
from pathlib import Path

words, place = sys.argv[1:], Path(os.environ["NOTES"])
site = Path(sysconfig.get_path("purelib"))
if words[0] == "--python":
    python = Path(words[1])
    site = next((python.parent.parent / "lib").glob("python*")) / "site-packages"
    words = words[2:]
what = "build" if "--editable" in words else "packages"
note = {"what": what, "words": words, "only": os.environ.get("TAILRACE_BUILD")}
if what == "packages":
    note["requirements"] = Path(words[-1]).read_text().split()
with open(place / "asked", "a") as asked:
    asked.write(json.dumps(note) + "\\n")
if (place / f"{what} fails").exists():
    sys.exit(f"ERROR: no matching distribution for {what}")
if (place / "started").exists():
    with open(place / "started", "w") as started:
        started.write(f"{os.getpid()}\\n")
    open(place / "go on").close()
if what == "packages" and not (site / "pip").exists():
    shutil.copytree(Path(__file__).parent, site / "pip")
    (site / "pip-99.dist-info").mkdir()
    (site / "pip-99.dist-info" / "RECORD").touch()
"""


class Clone:
    """A directory that `scripts/install` believes to be a clone."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self._notes = root / "notes"
        self.python = python
        self._held: list[int] = []
        for folder in ("scripts", "notes", "src/tailrace/records", "src/tailrace/spark/codec"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "install", root / "scripts")
        for name in ("pyproject.toml", "setup.py"):
            shutil.copy(ROOT / name, root)

    def start(self, level: str) -> subprocess.Popen[str]:
        unwanted = ("PIP_", "TAILRACE_", "PYTHON", "CC")
        env = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        return subprocess.Popen(
            [self.root / "scripts" / "install", level],
            env={**env, "PYTHON": str(self.python), "NOTES": str(self._notes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def install(self, level: str, *, code: int = 0) -> str:
        """What the script says."""
        process = self.start(level)
        said, complaint = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == code, said + complaint
        return said + complaint

    def asked(self) -> dict[str, dict[str, object]]:
        """What pip was asked for since the last call, by what it is; each at most once."""
        file = self._notes / "asked"
        notes = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        by_what = {note["what"]: note for note in notes}
        assert len(by_what) == len(notes), notes
        return by_what

    def break_pip(self, what: str) -> None:
        (self._notes / f"{what} fails").touch()

    def mend_pip(self) -> None:
        for file in self._notes.glob("* fails"):
            file.unlink()

    def hold_pip(self) -> None:
        """From now on every pip says that it started, and waits until it may go on."""
        for name in ("started", "go on"):
            os.mkfifo(self._notes / name)

    def wait_started(self) -> None:
        """Until both pips have started."""
        while len(self._held) < 2:
            self._held += [int(line) for line in (self._notes / "started").read_text().splitlines()]

    def end_held(self) -> None:
        """Those that a test which failed has left."""
        for pid in self._held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def let_pip_pass(self) -> None:
        """Later pips do not wait; those that wait do it until the gate is opened."""
        (self._notes / "started").unlink()

    @contextmanager
    def opened_gate(self) -> Iterator[None]:
        gate = os.open(self._notes / "go on", os.O_RDWR)
        try:
            yield
        finally:
            os.close(gate)

    def package(self, name: str) -> Path:
        """The folder of a package that was installed as a whole."""
        (site,) = (self.venv / "lib").glob("python*/site-packages")
        folder = site / name
        folder.mkdir()
        (folder / "RECORD").touch()
        return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", base], check=True, timeout=DEADLINE_S)
    (site,) = (base / "lib").glob("python*/site-packages")
    (site / "pip").mkdir()
    (site / "pip" / "__init__.py").write_text('__version__ = "99.0"\n')
    (site / "pip" / "__main__.py").write_text(PIP)
    return base / "bin" / "python"


@pytest.fixture
def clone(tmp_path: Path, python: Path) -> Iterator[Clone]:
    made = Clone(tmp_path, python)
    yield made
    made.end_held()


def names(note: dict[str, object]) -> set[str]:
    requirements = note["requirements"]
    assert isinstance(requirements, list)
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


# ---- levels


def test_the_core_has_neither_spark_nor_test_tools(clone: Clone) -> None:
    clone.install("core")
    asked = clone.asked()
    assert {"pip", "msgspec", "starlette"} <= names(asked["packages"])
    assert not {"pyspark", "pyarrow", "pytest", "mypy"} & names(asked["packages"])
    assert asked["build"]["only"] == "core"
    assert asked["build"]["words"] == ["install", "--no-deps", "--editable", "."]


def test_spark_is_the_core_and_what_pipelines_need(clone: Clone) -> None:
    clone.install("spark")
    asked = clone.asked()
    assert {"msgspec", "pyspark", "pyarrow", "pandas"} <= names(asked["packages"])
    assert not {"pytest", "mypy"} & names(asked["packages"])
    assert asked["build"]["only"] is None, "the twin of Spark's codec is compiled too"


def test_all_has_the_extras_that_the_test_tools_name(clone: Clone) -> None:
    clone.install("all")
    wanted = names(clone.asked()["packages"])
    assert {"msgspec", "pyspark", "pyarrow", "deltalake", "opentelemetry-sdk", "pytest", "mypy"} <= wanted
    assert "tailrace" not in wanted


@pytest.mark.parametrize("level", ["", "tests"])
def test_another_level_is_refused(clone: Clone, level: str) -> None:
    assert "usage: scripts/install core|spark|all" in clone.install(level, code=1)
    assert clone.asked() == {}


# ---- stamps


@pytest.mark.parametrize("first", ["core", "spark", "all"])
def test_a_second_call_does_nothing_and_says_nothing(clone: Clone, first: str) -> None:
    clone.install(first)
    clone.asked()
    assert clone.install(first) == ""
    assert clone.install("core") == ""
    assert clone.asked() == {}


@pytest.mark.parametrize(("first", "second"), [("core", "spark"), ("core", "all"), ("spark", "all")])
def test_a_lower_level_is_completed_in_the_same_environment(clone: Clone, first: str, second: str) -> None:
    clone.install(first)
    lower = names(clone.asked()["packages"])
    assert "virtual environment" not in clone.install(second)
    assert names(clone.asked()["packages"]) > lower
    assert clone.install(second) == ""


def test_an_environment_with_everything_keeps_everything(clone: Clone) -> None:
    clone.install("all")
    clone.asked()
    with (clone.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    clone.install("core")
    asked = clone.asked()
    assert {"pyspark", "pytest"} <= names(asked["packages"])
    assert asked["build"]["only"] is None
    assert clone.install("all") == ""


def test_a_compiled_module_does_not_outlive_its_source(clone: Clone) -> None:
    old = [
        clone.root / f"src/tailrace/{place}/_compiled.cpython-311.so" for place in ("records", "spark/codec")
    ]
    for file in old:
        file.touch()
    said = clone.install("all")
    assert not any(file.exists() for file in old)
    for module in ("records", "spark.codec"):
        assert f"without tailrace.{module}._compiled (no C compiler, or no Python headers)" in said


# ---- what is said


def test_every_step_is_told_with_its_seconds(clone: Clone) -> None:
    steps = re.findall(r"^  (\S.*?) +\d+\.\d s$", clone.install("core"), re.MULTILINE)
    version = subprocess.run([sys.executable, "--version"], capture_output=True, text=True, check=True).stdout
    assert steps == [
        f"virtual environment, {version.strip()}",
        "packages of the core",
        "Tailrace, its hot functions compiled meanwhile",
    ]


@pytest.mark.parametrize("what", ["packages", "build"])
def test_a_pip_that_fails_is_quoted_and_may_succeed_the_next_time(clone: Clone, what: str) -> None:
    clone.break_pip(what)
    said = clone.install("core", code=1)
    assert f"ERROR: no matching distribution for {what}" in said
    assert f"all of them in .venv/{what}.log. It needs the network, or PIP_NO_INDEX=1" in said
    clone.mend_pip()
    clone.asked()
    clone.install("core")
    assert clone.asked().keys() == {"packages", "build"}


def install_with(clone: Clone, python: str) -> str:
    """What the script says with a shell script in the place of Python; it fails and leaves nothing behind."""
    fake = clone.root / "python"
    fake.write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    fake.chmod(0o755)
    clone.python = fake
    said = clone.install("core", code=1)
    assert not clone.venv.exists()
    return said


def test_the_way_out_is_named_where_venv_is_missing(clone: Clone) -> None:
    said = install_with(clone, 'case "$*" in *"import venv"*) exit 1;; esac')
    assert "has no venv module, or neither pip nor ensurepip" in said
    assert "apt-get install python3-venv" in said


def test_the_way_out_is_named_where_neither_pip_nor_ensurepip_is(clone: Clone) -> None:
    said = install_with(clone, 'case "$*" in *"import pip"* | *ensurepip*) exit 1;; esac')
    assert "apt-get install python3-venv" in said


def test_an_old_python_is_refused(clone: Clone) -> None:
    old = f"""
        [ "$1" = --version ] && echo Python 3.10.9 && exit
        exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 9); $2"
    """
    assert "is not Python 3.11 or newer (Python 3.10.9)" in install_with(clone, old)


# ---- interruptions


@pytest.mark.parametrize("damage", ["no RECORD", "renamed", "no pip"])
def test_what_an_interrupted_pip_left_is_made_again(clone: Clone, damage: str) -> None:
    clone.install("core")
    clone.asked()
    package = clone.package("fastcrc-1.dist-info")
    assert clone.install("core") == "", "as long as it is whole"
    if damage == "no RECORD":
        (package / "RECORD").unlink()
    elif damage == "renamed":
        package.rename(package.with_name("~astcrc-1.dist-info"))
    else:
        shutil.rmtree(package.with_name("pip-99.dist-info"))
    assert "virtual environment" in clone.install("core")
    assert clone.asked().keys() == {"packages", "build"}
    assert not list(package.parent.glob("*astcrc*"))


def test_ctrl_c_ends_both_pips_and_the_next_call_succeeds(clone: Clone) -> None:
    clone.hold_pip()
    process = clone.start("core")
    clone.wait_started()
    os.killpg(process.pid, signal.SIGINT)
    said, complaint = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, said + complaint
    assert "error:" not in complaint
    assert not (clone.venv / ".installed").exists()
    clone.let_pip_pass()
    clone.asked()
    clone.install("core")  # would wait for ever for the lock that a pip has which is still there
    assert clone.asked().keys() == {"packages", "build"}


def test_after_a_kill_the_next_call_waits_for_the_pip_that_is_left(clone: Clone) -> None:
    clone.hold_pip()
    process = clone.start("core")
    clone.wait_started()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    clone.let_pip_pass()
    clone.asked()
    second = clone.start("core")
    assert second.stdout is not None
    assert "another installation into .venv is running; waiting" in second.stdout.readline()
    with clone.opened_gate():
        said, complaint = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 0, said + complaint
    assert clone.asked().keys() == {"packages", "build"}


def test_of_two_calls_at_once_one_installs(clone: Clone) -> None:
    clone.hold_pip()
    first = clone.start("core")
    clone.wait_started()
    second = clone.start("core")
    assert second.stdout is not None
    assert "waiting" in second.stdout.readline()
    clone.let_pip_pass()
    with clone.opened_gate():
        first.communicate(timeout=DEADLINE_S)
        said, complaint = second.communicate(timeout=DEADLINE_S)
    assert (first.returncode, second.returncode, said, complaint) == (0, 0, "", "")
    assert clone.asked().keys() == {"packages", "build"}
