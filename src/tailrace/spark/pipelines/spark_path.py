"""Paths of this machine as Spark takes them, whatever its default file system is.

Spark takes a URI in which every character stands for itself. Where it reads, it takes a pattern: a folder
named `lake [2026]` would be looked for as `lake 2`.
"""

from __future__ import annotations

import re
from pathlib import Path

_MEANING_MORE = re.compile(r"[\\{}\[\]*?]")


def spark_path(path: Path) -> str:
    """A path to write to."""
    return f"file://{path.absolute()}"


def spark_pattern(path: Path) -> str:
    """A path to read from: the pattern that only this path fits."""
    return _MEANING_MORE.sub(r"\\\g<0>", spark_path(path))
