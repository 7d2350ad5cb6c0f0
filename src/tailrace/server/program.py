"""How this program is called from the shell that started it, for texts that people copy.

After `make up` it is `.venv/bin/tailrace`, which is not on the PATH, and `tailrace` would not be found.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "tailrace"
_MODULE_FILE = "__main__.py"


def program_name() -> str:
    """`tailrace` if that is on the PATH and this program, else the way in which it was started."""
    started = Path(sys.argv[0])
    if started.name == _MODULE_FILE:
        return f"{_shortest(Path(sys.executable))} -m {NAME}"
    return _shortest(started) if started.name == NAME else NAME


def _shortest(program: Path) -> str:
    """A program's name if the PATH leads to it, else its path from here."""
    found = shutil.which(program.name)
    if found is not None and os.path.abspath(found) == os.path.abspath(program):
        return program.name
    path, here = os.path.abspath(program), os.path.join(os.getcwd(), "")
    return shlex.quote(path.removeprefix(here))
