"""TAILRACE_* variables without an effect: which are warned about, and what is suggested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tailrace
from tailrace.server.setting import settings
from tailrace.server.variable import OTHERS, warn_unknown


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TAILRACE_PORT", "Did you mean TAILRACE_KAFKA_PORT or TAILRACE_NATIVE_PORT or TAILRACE_HTTP_PORT?"),
        ("TAILRACE_DATADIR", "Did you mean TAILRACE_DATA_DIR?"),
        ("TAILRACE_BOOTSTRAP_SERVERS", "Did you mean TAILRACE_BOOTSTRAP?"),
        ("TAILRACE_COLOUR", "Try: tailrace config show"),
    ],
)
def test_an_unknown_variable_is_warned_about(name: str, meant: str) -> None:
    assert list(warn_unknown({name: "1"})) == [
        f"environment {name} has no effect: it is not a setting. {meant}"
    ]


@pytest.mark.parametrize(
    "name",
    ["PATH", "QB_OTHER", "MY_TAILRACE_PORT", "TAILRACE_CONFIG", "TAILRACE_KAFKA_PORT", "TAILRACE_FSYNC_FILE"],
)
def test_a_known_variable_and_one_of_another_program_are_not(name: str) -> None:
    assert not list(warn_unknown({name: "1"}))


@pytest.mark.parametrize("name", ["TAILRACE_SERVER__HOTS", "TAILRACE_SERVER_HOST"])
def test_what_the_configuration_refuses_is_not_warned_about_as_well(name: str) -> None:
    assert not list(warn_unknown({name: "1"}))


def test_what_kubernetes_sets_for_a_service_is_not_warned_about() -> None:
    environment = {
        "TAILRACE_SERVICE_HOST": "10.0.0.7",
        "TAILRACE_SERVICE_PORT": "9092",
        "TAILRACE_SERVICE_PORT_KAFKA": "9092",
        "TAILRACE_PORT": "tcp://10.0.0.7:9092",
        "TAILRACE_PORT_9092_TCP": "tcp://10.0.0.7:9092",
        "TAILRACE_PORT_9092_TCP_ADDR": "10.0.0.7",
    }
    assert not list(warn_unknown(environment))


def test_every_variable_that_the_package_names_is_known() -> None:
    known = OTHERS | {each.environment for each in settings().values()}
    known |= {each.flag_environment for each in settings().values()}
    sources = Path(tailrace.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r'"(TAILRACE_[A-Z_]*[A-Z])"', path.read_text())}
    assert named <= known
