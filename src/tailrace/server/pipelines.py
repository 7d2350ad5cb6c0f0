"""Pipelines beside a node: `tailrace up --pipelines` runs those of tailrace.toml, or the demo's, on it.

They are a process of their own, `tailrace pipeline run`: Spark takes seconds to start and much memory to run,
and nothing of that may touch the broker. The process tells its progress as JSON lines, which become a part of
the live line and a log line now and then. A pipeline that fails while the others go on is a warning. That the
process ends is said once, with its error, and the broker goes on. A process that was killed, or ended with an
error that may pass, is started again, after a wait that doubles each time; one that was told wrong is not.
It is stopped with the broker, before the listeners close; should we be killed, it sees its stdin end and
stops itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.client.tls import PIN_VARIABLE
from tailrace.model import ConfigError, escape
from tailrace.server.configuration import Configuration
from tailrace.server.demo.traffic import TOPICS

logger = logging.getLogger(__name__)

STOP_DEADLINE_S = 20.0
_DEMO_INTERVAL_S = 15  # a commit makes a dozen files, and a demo may run for long
_LOG_EVERY_S = 60.0
_LINE_BYTES_MAX = 8 << 20
_ERRORS_KEPT = 20
_RESTART_FIRST_S = 5.0
_RESTART_MOST_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """What `tailrace pipeline run` is told, but for the broker's address."""

    arguments: tuple[str, ...]
    summary: str  # for the screen


def plan_pipelines(configuration: Configuration, *, demo: bool) -> PipelinePlan:
    """What is declared, else the archive of the demo; ConfigError where neither is, or Spark cannot run."""
    from tailrace.spark.pipelines.session import check_spark

    check_spark()
    if configuration.pipelines:
        names = ", ".join(configuration.pipelines)
        file = () if configuration.file is None else ("--config", str(configuration.file))
        return PipelinePlan(arguments=("--all", *file), summary=names)
    if not demo:
        raise ConfigError(
            "--pipelines has nothing to run: declare [pipelines.NAME] in tailrace.toml, or add --demo, whose "
            "topics are archived"
        )
    lake = demo_lake(configuration)
    topics = ",".join(TOPICS)
    arguments = ("archive", "--topic", topics, "--to", str(lake), "--interval-s", str(_DEMO_INTERVAL_S))
    return PipelinePlan(arguments=arguments, summary=f"archive to {lake}")


def demo_lake(configuration: Configuration) -> Path:
    """Where the demo's topics are archived: beside the log, which takes no notice of it."""
    return Path(str(configuration["storage.data_dir"])) / "lake"


class PipelineProcess:
    """The process; `run` until it is cancelled. `text` is its part of the live line."""

    def __init__(self, plan: PipelinePlan, bootstrap_servers: str, *, pin: str | None = None) -> None:
        """`pin` is the broker's certificate, which the process trusts unless the environment names a CA."""
        self._environment = dict(os.environ) if pin is None else {PIN_VARIABLE: pin, **os.environ}
        self._command = (
            *(sys.executable, "-m", "tailrace", "pipeline", "run"),
            *plan.arguments,
            *("--bootstrap", bootstrap_servers, "--with-parent", "-o", "jsonl"),
        )
        self.text = "pipelines starting"
        self._texts: dict[str, str] = {}  # by run
        self._logged_at = time.monotonic()
        self._errors: deque[str] = deque(maxlen=_ERRORS_KEPT)
        self._may_pass = False  # whether the process said that a run failed with an error that may pass

    async def run(self) -> None:
        """Run it, and again where that may help; stop it when cancelled."""
        wait_s = _RESTART_FIRST_S
        while True:
            began = time.monotonic()
            code = await self._run_once()
            if code == 0:
                self.text = "pipelines finished"
                logger.info("pipelines finished")
                return
            if time.monotonic() - began >= _RESTART_MOST_S:
                wait_s = _RESTART_FIRST_S
            starts_again = code < 0 or self._may_pass
            self._tell_failure(code, wait_s=wait_s if starts_again else None)
            if not starts_again:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(_RESTART_MOST_S, 2 * wait_s)

    async def _run_once(self) -> int:
        """Start the process and follow it to its end; returns its exit code, or minus the signal."""
        self._may_pass = False
        self._errors.clear()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us; we pass it on when it is time
        )
        logger.info("pipelines run as pid %d", process.pid)
        try:
            await self._follow(process)
        except asyncio.CancelledError:
            await _stop(process)
            raise
        return await process.wait()

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_progress(process.stdout), name="pipeline progress")
            tasks.create_task(self._read_errors(process.stderr), name="pipeline errors")

    async def _read_progress(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.take_line(line)

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._errors.append(line.decode(errors="replace").strip())

    def take_line(self, line: bytes) -> None:
        """One object of the process's output; what is none is passed over."""
        try:
            found = json.loads(line)
        except ValueError:
            return
        if not isinstance(found, dict):
            return
        name = str(found.get("name"))
        if found.get("state") == "failed":
            logger.warning("pipeline %s failed: %s", escape(name), escape(str(found.get("error"))))
            self._texts[name] = f"{escape(name)} failed"
        elif isinstance(runs := found.get("runs"), list):
            self._may_pass = any(isinstance(run, dict) and run.get("retriable") is True for run in runs)
        elif "rows" in found:
            self._texts[name] = _text_of(found)
        self.text = " | ".join(self._texts.values()) or self.text
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            logger.info("pipelines: %s", self.text)

    def _tell_failure(self, code: int, *, wait_s: float | None) -> None:
        self.text = "pipelines failed"
        errors = [line for line in self._errors if line.startswith("error: ")] or list(self._errors)[-1:]
        reason = errors[-1].removeprefix("error: ") if errors else f"exit code {code}"
        again = "" if wait_s is None else f"; they start again in {wait_s:g} s"
        logger.error("the pipelines ended, the broker goes on%s: %s", again, escape(reason))


def _text_of(progress: dict[str, object]) -> str:
    """ "archive 12,345 rows, 1,230/s, lag 40"."""
    parts = [f"{progress.get('name')} {_count(progress.get('rows'))} rows"]
    parts.append(f"{_count(progress.get('rows_per_s'))}/s")
    if progress.get("lag") is not None:
        parts.append(f"lag {_count(progress['lag'])}")
    return escape(", ".join(parts))


def _count(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "?"


async def _stop(process: asyncio.subprocess.Process) -> None:
    """After its batch if that does not take long, else at once: the next run goes on where the lake ends."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):  # it ended at this moment
        process.send_signal(signal.SIGINT)
    waiting = asyncio.ensure_future(_drain(process))
    done, _ = await asyncio.wait({waiting}, timeout=STOP_DEADLINE_S)
    if not done:
        logger.warning("the pipelines did not stop within %g s and are ended", STOP_DEADLINE_S)
        process.kill()
    await waiting


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what it still says, so that no full pipe keeps it from ending."""
    await process.communicate()
