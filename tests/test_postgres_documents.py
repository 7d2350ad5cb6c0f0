"""What the documents show of PostgreSQL, on a real one: the role, the database, the settings, the SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.document import ROOT, broken_links
from tests.postgres import PostgresServer, run_on

from tailrace.cli.main import main
from tailrace.cluster.postgres_users import OPEN_S
from tailrace.cluster.user_following import POLL_S
from tailrace.server.configuration import read_config

DEPLOYMENT = ROOT / "docs" / "deployment-guide.md"
OPERATIONS = ROOT / "docs" / "security-operations.md"


def block(page: Path, title: str, language: str) -> str:
    """The one block of a language in a section."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return str(found)


def test_users_are_kept_as_the_documents_say(
    own_postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for statement in block(DEPLOYMENT, "PostgreSQL", "sql").split(";")[:-1]:
        run_on(own_postgres.dsn(), lambda each: each.execute(statement))  # noqa: B023
    (tmp_path / "password").write_text("open sesame, 42")
    config = tmp_path / "tailrace.toml"
    config.write_text(block(DEPLOYMENT, "PostgreSQL", "toml").replace(":5432", f":{own_postgres.port}"))
    for name in ("alice", "bob"):
        options = ["--config", str(config), "--password-file", str(tmp_path / "password")]
        assert main(["user", "create", name, *options]) == 0, capsys.readouterr().err
    tailrace = own_postgres.dsn("tailrace", user="tailrace", password="replace-me")
    for statement in block(OPERATIONS, "Users in PostgreSQL", "sql").splitlines():
        run_on(tailrace, lambda each: each.execute(statement))  # noqa: B023
    capsys.readouterr()
    assert main(["user", "list", "--config", str(config), "-o", "jsonl"]) == 0
    (listed,) = capsys.readouterr().out.splitlines()
    assert '"name":"alice"' in listed.replace(" ", "") and '"enabled":false' in listed.replace(" ", "")


def test_the_figures_are_those_of_the_program() -> None:
    text = " ".join(OPERATIONS.read_text(encoding="utf-8").split())
    grace_s = read_config(environment={}, directory=Path("/nonexistent"))["security.postgres_grace_s"]
    for figure in (
        f"look every {POLL_S:g} s",
        f"waits for {OPEN_S:g} s",
        f"`security.postgres_grace_s` ({grace_s})",
    ):
        assert figure in text


def test_links_lead_somewhere() -> None:
    assert broken_links(DEPLOYMENT) == broken_links(OPERATIONS) == []
