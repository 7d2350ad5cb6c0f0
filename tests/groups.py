"""Which tests stay together in a run in several processes: those of a file, and files that share a Spark.

They share servers and sessions; each process that gets one of them starts its own. `--dist loadfile` keeps
the files together, and the scheduler here takes the files that share something for one. The groups of
pytest-xdist itself cannot say so: 3.8 writes them into the names of tests where pytest 9.2 does not look.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).parents[1]
_BROWSER = "tests/browser/"
_SPARKS = 2  # as one session, the tests that share it would still run long after all others have ended


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow groups first: one that starts last keeps one process busy while the others are done."""
    if hasattr(config, "workerinput"):
        slow = Counter(group_of(item.nodeid) for item in items if item.get_closest_marker("slow") is not None)
        items.sort(key=lambda item: -slow[group_of(item.nodeid)])


def group_of(nodeid: str) -> str:
    """Returns the group of a test: its file, or the browser or Spark that its file shares."""
    file = nodeid.partition("::")[0]
    if file.startswith(_BROWSER):
        return _BROWSER
    sharing = _files_with_spark()
    return f"spark {sharing.index(file) % _SPARKS}" if file in sharing else file


@cache
def _files_with_spark() -> list[str]:
    """The files whose tests or fixtures take the session of tests/spark/conftest.py."""
    files = sorted((_ROOT / "tests" / "spark").glob("test_*.py"))
    return [str(file.relative_to(_ROOT)) for file in files if "spark: SparkSession" in file.read_text()]
