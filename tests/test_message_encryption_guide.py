"""docs/security-operations.md, section Message encryption: its commands and its programs run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.document import ROOT

import tailrace

TEXT = (ROOT / "docs" / "security-operations.md").read_text(encoding="utf-8")
SECTION = TEXT[TEXT.index("## Message encryption") :].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)


def test_the_key_is_made_and_a_message_is_encrypted_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_key, (program,) = blocks("bash")[0], blocks("python")
    subprocess.run(["bash", "-ec", make_key], check=True)
    assert (tmp_path / "k1.key").stat().st_size == 32
    with tailrace.Broker() as broker:
        exec(compile(program, "example", "exec"), {"native_port": broker.native_port})
        (record,) = broker.read("orders")
    assert record.key == b"customer-7" and record.value is not None
    assert b"an order" not in record.value and len(record.value) == len("an order") + 16
