"""The ports file: written whole, read back whole or not at all, taken away by its owner only."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tailrace.server.ports import FILE_NAME, Ports, read_ports, remove_ports, write_ports


def test_the_file_has_every_listener_with_null_for_those_that_are_not_there(tmp_path: Path) -> None:
    write_ports(tmp_path, Ports(pid=812, kafka=9092))
    assert json.loads((tmp_path / "tailrace.ports.json").read_text()) == {
        "pid": 812,
        "kafka": 9092,
        "native": None,
        "http": None,
    }
    assert read_ports(tmp_path) == Ports(pid=812, kafka=9092)


def test_writing_leaves_nothing_else_behind(tmp_path: Path) -> None:
    write_ports(tmp_path, Ports(pid=1, kafka=1))
    write_ports(tmp_path, Ports(pid=2, kafka=2))
    assert os.listdir(tmp_path) == [FILE_NAME]
    assert read_ports(tmp_path) == Ports(pid=2, kafka=2)


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    write_ports(tmp_path, Ports(pid=1, kafka=1))
    remove_ports(tmp_path, pid=1)
    remove_ports(tmp_path, pid=1)
    assert os.listdir(tmp_path) == []


def test_the_file_of_another_process_is_left_alone(tmp_path: Path) -> None:
    write_ports(tmp_path, Ports(pid=2, kafka=1))
    remove_ports(tmp_path, pid=1)
    assert read_ports(tmp_path) == Ports(pid=2, kafka=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"pid": 1}',
        '{"pid": null, "kafka": 1, "native": null, "http": null}',
        '{"pid": 1, "kafka": "9092", "native": null, "http": null}',
    ],
)
def test_a_file_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert read_ports(tmp_path) is None


def test_without_a_file_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert read_ports(tmp_path) is None


def test_the_certificates_of_listeners_with_tls_are_named(tmp_path: Path) -> None:
    secured = Ports(pid=1, kafka=9092, native=9999, tls={"kafka": "/etc/server.crt"})
    write_ports(tmp_path, secured)
    assert read_ports(tmp_path) == secured
    write_ports(tmp_path, Ports(pid=1, kafka=9092))
    assert "tls" not in (tmp_path / "tailrace.ports.json").read_text()
