"""docs/security-operations.md, section Message encryption: its commands and its programs run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.document import ROOT

import tailrace
from tailrace.cli.main import main

TEXT = (ROOT / "docs" / "security-operations.md").read_text(encoding="utf-8")
SECTION = TEXT[TEXT.index("## Message encryption") :].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)


def test_the_key_is_made_and_a_message_is_encrypted_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_key, (program,) = blocks("bash")[0], blocks("python")
    subprocess.run(["bash", "-ec", make_key], check=True)
    assert (tmp_path / "k1.key").stat().st_size == 32
    commands = [shlex.split(line) for line in blocks("bash")[1].splitlines()]
    with tailrace.Broker() as broker:
        exec(compile(program, "example", "exec"), {"native_port": broker.native_port})
        (record,) = broker.read("orders")
        assert record.key == b"customer-7" and record.value is not None
        assert b"an order" not in record.value and len(record.value) == len("an order") + 16
        monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
        monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
        for program_name, *words in commands:
            assert program_name == "tailrace" and main(words) == 0, (words, capsys.readouterr())
        shown = capsys.readouterr().out
        assert [shown.count(text) for text in ("an order", "another order", "a third order")] == [2, 2, 1]
        for record in broker.read("orders"):
            assert record.value is not None and b"order" not in record.value


def test_commands_refuse_what_they_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "k1.key"
    key.write_bytes(bytes(range(32)))
    with tailrace.Broker() as broker:
        monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
        broker.produce("orders", b"plain")
        tail = ["tail", "orders", "--no-follow", "--encryption-key"]
        key.chmod(0o644)
        assert main([*tail, f"k1={key}"]) == 2
        assert "Try: chmod 600" in capsys.readouterr().err
        key.chmod(0o600)
        assert main([*tail, f"k1={key}"]) == 1
        assert "it is not encrypted, and encryption is required here" in capsys.readouterr().err
        assert main([*tail, f"k1={key}", "--encryption-policy", "allow"]) == 0
        assert "plain" in capsys.readouterr().out
        secret = bytes(range(32)).hex()
        assert main([*tail, f"k1={secret}"]) == 2
        assert secret not in capsys.readouterr().err
        assert main(["tail", "orders", "--encryption-active", "k1"]) == 2


def test_the_example_runs(tmp_path: Path) -> None:
    key = tmp_path / "k1.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    script = ROOT / "examples" / "encryption" / "sealed_orders.py"
    with tailrace.Broker() as broker:
        command = [sys.executable, str(script), str(key), broker.bootstrap_servers, str(broker.native_port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == "b'customer-7' b'three boxes of tea'"
    assert second.startswith("without the key: ") and b"tea".hex() not in second
