"""What a run says at its end: which files took longest, and how each test that failed is run again alone.

The files are told with `--durations` only, as `scripts/test` has it. A new file among them is worth a look:
what takes minutes is marked heavy, and what waits can often wait for an event or in virtual time.
"""

from __future__ import annotations

import shlex
import sys
from collections import defaultdict

import pytest

_FILES = 10


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("durations"):
        _tell_files(terminalreporter)
    reports = [each for kind in ("failed", "error") for each in terminalreporter.getreports(kind)]
    failed = dict.fromkeys(_plain(each.nodeid) for each in reports)
    if failed:
        terminalreporter.write_sep("=", "to repeat them alone")
    for nodeid in failed:
        terminalreporter.write_line(f"{_command(config)} {shlex.quote(nodeid)}")


def _tell_files(reporter: pytest.TerminalReporter) -> None:
    seconds: dict[str, float] = defaultdict(float)
    for reports in reporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport):
                seconds[each.nodeid.partition("::")[0]] += each.duration
    reporter.write_sep("=", f"slowest {_FILES} files")
    for file, spent_s in sorted(seconds.items(), key=lambda each: -each[1])[:_FILES]:
        reporter.write_line(f"{spent_s:7.1f} s {file}")


def _plain(nodeid: str) -> str:
    """Without the group that pytest-xdist writes behind a name."""
    head, at, _ = nodeid.rpartition("@")
    return head if at and nodeid.rfind("]") < len(head) else nodeid


def _command(config: pytest.Config) -> str:
    mode = "PYTHONDEVMODE=1 " if sys.flags.dev_mode else ""
    profile = config.getoption("hypothesis_profile", default=None)
    return f"{mode}.venv/bin/pytest" + (f" --hypothesis-profile={profile}" if profile else "")
