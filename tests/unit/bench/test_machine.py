"""What is told of the machine: of the real one, and of mount tables made up here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.bench.machine import describe_machine, read_file_system

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /mnt/data rw - xfs /dev/vdb rw
31 22 0:41 / /mnt/data rw master:3 propagate_from:2 - btrfs /dev/vdc rw
32 22 0:42 / /mnt/my\\040disk rw - zfs pool rw
not a mount at all
33 22 0:43 - tmpfs
34 22 0:44 / /srv rw -
"""


def test_every_fact_is_there_and_can_be_printed(tmp_path: Path) -> None:
    machine = describe_machine(tmp_path)
    assert {"cpu", "cores", "memory_bytes", "kernel", "file_system", "python", "fastcrc", "uvloop"} <= set(
        machine
    )
    assert machine["tailrace"] == tailrace.__version__
    assert isinstance(machine["cores"], int)
    assert machine["cores"] >= 1
    assert isinstance(machine["memory_bytes"], int)
    assert json.loads(json.dumps(machine)) == machine


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/home/me", "ext4"),
        ("/mnt/database", "ext4"),  # its name only begins like a mount point
        ("/mnt/data", "btrfs"),  # mounted last
        ("/mnt/data/deep/down", "btrfs"),
        ("/mnt/my disk/x", "zfs"),
        ("/srv/x", "ext4"),  # a line cut off says nothing
    ],
)
def test_the_file_system_is_that_of_the_deepest_and_newest_mount(directory: str, kind: str) -> None:
    assert read_file_system(MOUNTS, Path(directory)) == kind


@pytest.mark.parametrize("mounts", ["", "\n", "22 1 254:0 / / rw", "22 1 0:1 / /other rw - xfs /dev/vdb rw"])
def test_a_table_that_does_not_tell_is_unknown(mounts: str) -> None:
    assert read_file_system(mounts, Path("/data")) == "unknown"
