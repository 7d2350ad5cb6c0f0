"""The Makefile and its scripts, without installing anything: targets, help, what each installs, packages."""

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


def test_the_full_run_is_the_one_with_the_heavy_tests() -> None:
    assert "scripts/test\n" in make("--dry-run", "test")
    assert "scripts/test --full\n" in make("--dry-run", "test-full")


def test_up_installs_the_core_and_every_other_target_everything() -> None:
    assert make("--dry-run", "up").split("\n") == [
        "scripts/install core",
        ".venv/bin/tailrace up --demo",
        "",
    ]
    for target in ("install", "test", "test-full", "check", "build", "bench"):
        assert "scripts/install all\n" in make("--dry-run", target)


def test_up_with_spark_brings_java_and_spark_and_runs_the_pipelines() -> None:
    assert make("--dry-run", "up", "SPARK=1").split("\n") == [
        "scripts/install-packages spark",
        "scripts/install spark",
        ".venv/bin/tailrace up --demo --pipelines",
        "",
    ]


@pytest.mark.parametrize("given", ["SPARK=", "SPARK=0", "SPARK=no"])
def test_spark_can_be_refused(given: str) -> None:
    assert make("--dry-run", "up", given) == make("--dry-run", "up")


@pytest.mark.parametrize(
    "script",
    [".ci/run", "scripts/install", "scripts/install-packages", "scripts/fetch-promtool", "scripts/test"],
)
def test_scripts_are_executable_and_stop_at_the_first_failure(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert "\nset -euo pipefail\n" in path.read_text(encoding="utf-8")


def install_packages_with(
    tmp_path: Path, *wanted: str, user: int, refused: str, code: int = 0
) -> tuple[str, list[str]]:
    """Run scripts/install-packages where no program is; what it says, and what it asks apt-get for."""
    programs = {
        "id": f"echo {user}",
        "update-rc.d": f'echo "$*" >>{tmp_path}/disabled',
        "apt-get": f'echo "$*" >>{tmp_path}/asked; echo {tmp_path}/usr/sbin/* >>{tmp_path}/policy; '
        f'case "$*" in *{refused}*) exit 100;; esac',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    for name in ("chmod", "mkdir", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name) or "missing")
    (tmp_path / "usr" / "sbin").mkdir(parents=True, exist_ok=True)
    script = (ROOT / "scripts" / "install-packages").read_text(encoding="utf-8")
    done = subprocess.run(
        ["/bin/bash", "-c", script.replace(":/usr/sbin:/sbin", ""), "install-packages", *wanted],
        env={
            **os.environ,
            "PATH": str(tmp_path),
            "PYTHON": sys.executable,
            "JAVA_HOME": "",
            "TAILRACE_TEST_ROOT": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr == "") == (code, code == 0)
    asked = tmp_path / "asked"
    return done.stdout + done.stderr, asked.read_text(encoding="utf-8").splitlines() if asked.exists() else []


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


def test_no_server_of_the_system_is_started_by_its_installation(tmp_path: Path) -> None:
    said, _ = install_packages_with(tmp_path, user=0, refused="nothing")
    assert "redis-server" in said
    created = tmp_path / "etc" / "postgresql-common" / "createcluster.conf"
    assert created.read_text(encoding="utf-8") == "create_main_cluster = false\n"
    policy = tmp_path / "usr" / "sbin" / "policy-rc.d"
    assert (tmp_path / "policy").read_text(encoding="utf-8").splitlines() == [str(policy)] * 2
    assert not policy.exists(), "it is for the time of the installation"
    assert (tmp_path / "disabled").read_text(encoding="utf-8") == "redis-server disable\n"


def test_what_the_system_says_of_servers_is_left_alone(tmp_path: Path) -> None:
    for place in ("usr/sbin/policy-rc.d", "etc/postgresql-common/createcluster.conf"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("mine", encoding="utf-8")
    install_packages_with(tmp_path, user=0, refused="nothing")
    for place in ("usr/sbin/policy-rc.d", "etc/postgresql-common/createcluster.conf"):
        assert (tmp_path / place).read_text(encoding="utf-8") == "mine"


def test_a_package_that_cannot_be_had_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    said, asked = install_packages_with(tmp_path, user=0, refused="kcat")
    assert re.findall(r"could not install (\S+);", said) == ["kcat"]
    one_by_one = [line.split()[-1] for line in asked[2:]]
    assert {"e2fsprogs", "mount", "strace", "nodejs", "npm"} <= set(one_by_one)


def test_spark_needs_java_alone_and_it_is_installed_where_we_are_root(tmp_path: Path) -> None:
    (tmp_path / "apt-cache").symlink_to("/bin/true")
    said, asked = install_packages_with(tmp_path, "spark", user=0, refused="nothing", code=1)
    assert [line.split()[-1] for line in asked] == ["update", "openjdk-17-jre-headless"]
    assert "installing openjdk-17-jre-headless\n" in said
    assert "apt-get could not install it" in said, "it is still not there, and Spark would not start"


def test_spark_without_java_is_an_error_where_we_are_not_root(tmp_path: Path) -> None:
    said, asked = install_packages_with(tmp_path, "spark", user=1000, refused="nothing", code=1)
    assert "error: Spark needs Java 17 or newer" in said
    assert (
        "sudo apt-get install default-jre-headless; elsewhere set JAVA_HOME. Without Spark: make up\n" in said
    )
    assert asked == []


def test_spark_needs_nothing_where_java_is(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to("/bin/true")
    assert install_packages_with(tmp_path, "spark", user=1000, refused="nothing") == ("", [])
