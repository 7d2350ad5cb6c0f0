"""README as a newcomer follows it: its example and its commands are run, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.document import ROOT, Caller, broken_links, examples, node_ports, node_screen

from tailrace.testing.faults.image import copy_as_killed

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command line of README but curl's, without the remark at its end."""
    return [
        line.split("  #")[0].strip()
        for block in blocks("sh")
        if "curl" not in block
        for line in block.splitlines()
        if line.strip()
    ]


def tailrace_arguments() -> list[list[str]]:
    return [shlex.split(line)[1:] for line in commands() if line.startswith(".venv/bin/tailrace ")]


def run_python(*args: str, cwd: Path, **environment: str) -> str:
    """What this interpreter prints; README's .venv is the one that the tests run in."""
    done = subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(args)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def example(name: str) -> str:
    """The Python block that README saves under a name, or shows as a test."""
    told_by = {"hello.py": "tailrace.Broker()", "worker.py": "BrokerClient(", "test_orders.py": "def test_"}
    wanted = told_by[name]
    (found,) = [block for block in blocks("python") if wanted in block]
    return found


def run_example(cwd: Path) -> str:
    (cwd / "hello.py").write_text(example("hello.py"), encoding="utf-8")
    return run_python("-W", "error", "hello.py", cwd=cwd)


def test_the_example_prints_what_readme_says(tmp_path: Path) -> None:
    printed = re.search(r"^It prints\n\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert printed is not None
    assert run_example(tmp_path) == printed[1]


def test_the_test_that_readme_shows_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(example("test_orders.py"), encoding="utf-8")
    assert "1 passed" in run_python("-m", "pytest", "-q", "test_orders.py", cwd=tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What `make up` runs, on a free port; the directory it runs in."""
    cwd = tmp_path_factory.mktemp("up")
    with node_screen(cwd, "--demo") as screen:
        (cwd / "screen").write_text(screen, encoding="utf-8")
        yield cwd


def test_the_screen_is_the_one_that_readme_shows(server: Path) -> None:
    (shown,) = [block for block in blocks("text") if block.startswith("tailrace ")]
    # The test starts the node as a module, on ports that are not the usual ones.
    program, address = rf"{re.escape(sys.executable)} -m tailrace", r" -b 127\.0\.0\.1:\d+"
    anything = (
        re.escape(shown)
        .replace(re.escape(".venv/bin/tailrace tail orders"), f"{program} tail orders{address}")
        .replace(re.escape(".venv/bin/tailrace bench"), f"{program} bench{address}")
        .replace(re.escape(".venv/bin/tailrace"), program)
        .replace("9092", r"\d+")
        .replace("9999", r"\d+")
        .replace("8080", r"\d+")
        .replace(r"0\.4\ s", r"\d+\.\d\ s")
    )
    anything = re.sub(r"(\\ )+", r"\\s+", anything)
    assert re.search(anything, (server / "screen").read_text(encoding="utf-8"))


def test_the_commands_work_on_the_server(server: Path) -> None:
    ports = node_ports(server)
    (server / "worker.py").write_text(example("worker.py").replace("9999", str(ports["native"])))
    assert run_python("-W", "error", "worker.py", cwd=server) == "resize picture 7 {'kind': 'photo'}\n"
    addresses = {
        "TAILRACE_BOOTSTRAP": f"127.0.0.1:{ports['kafka']}",
        "TAILRACE_NODE": f"127.0.0.1:{ports['native']}",
    }
    listeners = ["--kafka-port", str(ports["kafka"]), "--native-port", str(ports["native"])]
    listeners += ["--http-port", str(ports["http"])]
    # Those of pipelines need a Spark, and are run with the guide's: tests/spark/test_guide_spark.py.
    arguments = [args for args in tailrace_arguments() if args[0] not in ("bench", "log", "pipeline")]
    assert len(arguments) >= 11
    for args in arguments:
        known = listeners if args == ["doctor"] else []
        printed = run_python("-m", "tailrace", *args, *known, cwd=server, **addresses)
        assert printed.strip() != ""
        if args[:2] == ["tail", "greetings"]:
            assert "hello" in printed and "world" in printed


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_calls_by_http_work_on_the_server(server: Path) -> None:
    ports = node_ports(server)
    caller = Caller(server, ports)
    calls = [each for each in examples(README) if each.language == "sh" and "curl" in each.text]
    assert len(calls) == 3
    for call in calls:
        printed = caller.run(call)
        assert printed.strip() != "" and '{"error":' not in printed
        if "test-topic" in call.text:
            assert '"partitions":10,"replication_factor":1' in printed


def test_the_log_commands_work_on_a_servers_data(server: Path) -> None:
    arguments = [args for args in tailrace_arguments() if args[0] == "log"]
    assert [args[1] for args in arguments] == ["inspect", "verify"]
    copy_as_killed(server / "tailrace-data", server / "copy" / "tailrace-data")
    assert run_python("-m", "tailrace", *arguments[0], cwd=server / "copy").strip() != ""


@pytest.mark.slow
def test_the_benchmark_commands_work(server: Path, tmp_path: Path) -> None:
    port = node_ports(server)["kafka"]
    arguments = [args for args in tailrace_arguments() if args[0] == "bench"]
    assert [args[1:] for args in arguments] == [["--quick"], ["log", "--quick"]]
    for args in arguments:
        printed = run_python("-m", "tailrace", *args, cwd=tmp_path, TAILRACE_BOOTSTRAP=f"127.0.0.1:{port}")
        assert printed.strip() != ""


def test_every_command_of_readme_is_known_to_these_tests() -> None:
    known = re.compile(
        r"make [a-z-]+$|\.venv/bin/tailrace "
        r"(--help|produce|tail|topic|group|doctor|config|log|bench|publish|subscription|consume|inspect|pipeline)"
    )
    assert commands() != []
    assert [line for line in commands() if not known.match(line)] == []


def test_make_targets_named_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE))
        assert named <= targets, f"{document.name} names make targets that do not exist: {named - targets}"


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []
