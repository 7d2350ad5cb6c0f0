"""Another Python: what it prints, how it fails, and that it ends with us."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tailrace.bench.process import run_python
from tailrace.model import TailraceError


def test_what_it_prints_comes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "speaker.py").write_text("import os, sys; print(*sys.argv[1:], os.environ['WORD'])")
    monkeypatch.syspath_prepend(tmp_path)
    assert asyncio.run(run_python("speaker", "one", environment={"WORD": "two"})) == "one two\n"


def test_one_that_fails_says_why() -> None:
    with pytest.raises(
        TailraceError, match=r"tailrace.bench.nowhere ended with exit code 1: .*No module named"
    ):
        asyncio.run(run_python("tailrace.bench.nowhere"))


def test_one_that_fails_without_a_word_still_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("import os; os._exit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TailraceError, match="exit code 7: no message"):
        asyncio.run(run_python("silent"))


def test_whoever_stops_waiting_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has a session of its own, so that a Ctrl-C reaches it through us and not before us."""
    told = tmp_path / "told"
    os.mkfifo(told)
    (tmp_path / "waiter.py").write_text(
        f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario() -> None:
        waiting = asyncio.create_task(run_python("waiter"))
        pid = int(await asyncio.to_thread(told.read_text))
        assert os.getsid(pid) == pid
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(scenario())
