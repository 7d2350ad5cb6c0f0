"""What is deployed is parsed and checked against the program: containers cannot be run everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.server.setting import settings
from tailrace.server.variable import PREFIX

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
OBSERVABILITY = ROOT / "deploy" / "observability" / "compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
UNIT = ROOT / "deploy" / "systemd" / "tailrace.service"

_DEFAULTED = re.compile(r"\$\{(\w+):-([^}]*)\}")


def load(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def environment() -> dict[str, str]:
    found: dict[str, str] = load(COMPOSE)["services"]["tailrace"]["environment"]
    return found


def by_variable() -> dict[str, Any]:
    return {each.environment: each for each in settings().values()}


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("path", [COMPOSE, OBSERVABILITY], ids=lambda path: path.parent.name)
def test_every_port_is_published_on_loopback(path: Path) -> None:
    published = [port for service in load(path)["services"].values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_variables_of_the_container_are_settings_with_values_they_accept() -> None:
    known = by_variable()
    for name, text in environment().items():
        assert name in known, name
        known[name].kind.read(_DEFAULTED.sub(lambda found: found[2], str(text)))


def test_what_the_example_sets_is_what_holds_without_it() -> None:
    told = {found[0]: found[1] for text in environment().values() for found in _DEFAULTED.findall(str(text))}
    ports = load(COMPOSE)["services"]["tailrace"]["ports"]
    told |= {found[0]: found[1] for port in ports for found in _DEFAULTED.findall(port)}
    assert example() == told


def test_the_example_says_the_defaults_of_the_program() -> None:
    known = by_variable()
    for name, text in example().items():
        if name.startswith(PREFIX) and name != "TAILRACE_LOG__FORMAT":  # machines read containers' logs
            setting = known[name]
            assert setting.kind.read(text) == setting.kind.read(str(setting.default)), name


def test_the_container_serves_on_the_ports_that_are_published() -> None:
    exposed = re.search(r"^EXPOSE (.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert exposed is not None
    inside = [port.rpartition(":")[2] for port in load(COMPOSE)["services"]["tailrace"]["ports"]]
    defaults = [settings()[key].default for key in ("server.kafka_port", "native.port", "http.port")]
    assert exposed[1].split() == inside == [str(port) for port in defaults]


def test_the_image_runs_as_somebody_else_than_root_and_is_asked_whether_it_is_ready() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["tailrace"]
    assert "http://127.0.0.1:8080/health/ready" in text
    assert 'ENTRYPOINT ["tailrace"]' in text


def test_an_image_without_the_compiled_twins_is_not_built() -> None:
    """They are optional for setuptools: a build that could not make them goes on without a word."""
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    (installing,) = [line for line in text.splitlines() if "pip install" in line]
    assert installing.startswith("RUN ") and "gcc" in text
    assert re.search(r'&& /opt/tailrace/bin/python -c "import tailrace\.records\._compiled"$', installing)


def test_what_the_image_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"pyproject.toml", "setup.py", "src"} <= set(names), "the build needs them"
    assert all((ROOT / name).exists() for name in names), names


def test_files_that_the_observers_mount_are_there() -> None:
    for service in load(OBSERVABILITY)["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("./") or (ROOT / source).is_dir(), source


def test_containers_and_services_are_given_the_time_that_a_clean_stop_takes() -> None:
    from tailrace.server.run import CLOSE_DEADLINE_S

    grace = load(COMPOSE)["services"]["tailrace"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > CLOSE_DEADLINE_S
    unit = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert unit is not None
    assert int(unit[1]) > CLOSE_DEADLINE_S


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / "tailrace.service"
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/tailrace/bin/tailrace", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "tailrace.service" in line]
    assert complaints == []
