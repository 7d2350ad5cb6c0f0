"""docs/security-operations.md, section Encryption at rest: its configuration and its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.document import ROOT
from tests.unit.storage.encryption.test_encrypted_directory import check, make

from tailrace.security.keys import KeySource
from tailrace.storage.encryption.config import Encryption

TEXT = (ROOT / "docs" / "security-operations.md").read_text(encoding="utf-8")
SECTION = TEXT[TEXT.index("## Encryption at rest") :].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)


def run(commands: str, path: Path) -> str:
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    (configuration,), (first, rotation) = blocks("toml"), blocks("bash")
    (tmp_path / "tailrace.toml").write_text(f'[storage]\ndata_dir = "data"\n\n{configuration}')
    found = make(tmp_path / "data", None)
    shown = run(first, tmp_path)
    assert "plain_segments" in shown and "rewritten" in shown
    before = KeySource("file", str(tmp_path / "tailrace.key")).read()
    assert before.key_id in shown
    run(rotation, tmp_path)
    assert "previous_key" not in (tmp_path / "tailrace.toml").read_text()
    after = KeySource("file", str(tmp_path / "tailrace.key")).read()
    assert after.key_id != before.key_id
    check(tmp_path / "data", found, Encryption(keys=(after,)))
