"""docs/security-operations.md: its configuration is one, its commands run, its links lead somewhere."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.document import ROOT, broken_links

from tailrace.cli.main import main
from tailrace.net.logins import LOGIN_BYTES_MAX, LOGIN_S, PendingLogins
from tailrace.security.guessing import DELAY_S_MAX, DELAY_S_MIN
from tailrace.server.configuration import check_file

PAGE = ROOT / "docs" / "security-operations.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def test_links_lead_somewhere() -> None:
    assert broken_links(PAGE) == []


def test_the_configuration_is_accepted_and_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration, *more = re.findall(r"^```toml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    file = tmp_path / "tailrace.toml"
    monkeypatch.chdir(tmp_path)
    for other in (*more, ""):  # what later sections add to the first one
        file.write_text(configuration + other)
        assert check_file(file) == [], other
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ran = 0
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "tailrace"
        if words[0] in ("up", "audit"):  # these need a broker: interop/test_login.py, unit/http/test_audit.py
            continue
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"open sesame, 42\n")))
        confirmed = ["--yes"] if words[1] == "delete" else []
        assert main([*words, *confirmed]) == 0, (command, capsys.readouterr().err)
        ran += 1
    assert ran >= 7


def test_the_figures_are_those_of_the_program() -> None:
    pending = PendingLogins()
    for figure in (
        f"{DELAY_S_MIN * 1000:.0f} ms at least",
        f"up to {DELAY_S_MAX:g} s",
        f"has {LOGIN_S:g} s to log in",
        f"At most {pending._total_max:,} connections, and {pending._per_address_max} of one address",
        f"{LOGIN_BYTES_MAX // 1024} KiB at most",
    ):
        assert figure in " ".join(TEXT.split()), figure
