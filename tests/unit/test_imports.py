"""What importing Tailrace costs: a fresh interpreter imports it and lists what came along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace

PACKAGES = ["tailrace.model", "tailrace.records", "tailrace.runtime", "tailrace.storage"]


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def test_import_tailrace_imports_nothing_else() -> None:
    added = modules_after("import tailrace") - modules_after("pass")
    assert added == {"tailrace"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_neither_the_command_line_nor_test_tools(package: str) -> None:
    heavy = {"click", "rich", "rich_click", "pytest", "hypothesis", "tailrace.cli", "tailrace.testing"}
    assert heavy & modules_after(f"import {package}") == set()


def test_model_imports_nothing_of_tailrace_but_itself() -> None:
    ours = {name for name in modules_after("import tailrace.model") if name.startswith("tailrace.")}
    assert ours == {"tailrace.model", "tailrace.model.errors", "tailrace.model.names", "tailrace.model.text"}


WEB = {
    "starlette",
    "uvicorn",
    "httptools",
    "websockets",
    "prometheus_client",
    "opentelemetry",
    "tailrace.http",
    "tailrace.telemetry",
    "tailrace.metrics",
}


def test_an_embedded_broker_without_http_does_not_load_what_only_http_needs() -> None:
    found = modules_after("import tailrace; tailrace.Broker().start()")
    assert "tailrace.server.embedded" in found
    assert WEB & found == set()


def test_an_embedded_broker_in_memory_loads_no_other_engine() -> None:
    found = modules_after("import tailrace; tailrace.Broker().start()")
    others = (
        "tailrace.storage.segment",
        "tailrace.storage.tiered",
        "tailrace.postgres",
        "asyncpg",
        "hiredis",
    )
    assert [name for name in found if name.startswith(others)] == []


def test_an_app_that_is_only_made_loads_nothing_yet() -> None:
    found = modules_after("import tailrace; tailrace.Broker().asgi(); tailrace.AsyncBroker().asgi()")
    assert "tailrace.server.mounted" in found
    assert WEB & found == set()


def test_an_embedded_broker_with_http_loads_it() -> None:
    found = modules_after("import tailrace; tailrace.Broker(http_port=0).start()")
    assert found >= {"starlette", "uvicorn", "tailrace.http"}
