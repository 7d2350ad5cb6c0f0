"""Which Python Spark runs for a pipeline: one name, for the driver's machine and for every worker.

Spark has two rules for that. Jobs of pyspark (archive, compact, replay) use PYSPARK_PYTHON. Data sources that
Spark finds by itself (source and sink) use PYSPARK_DRIVER_PYTHON if the JVM has it, on the workers too, and
PYSPARK_PYTHON only without it. So the JVM is started without PYSPARK_DRIVER_PYTHON, and PYSPARK_PYTHON alone
decides:

    PYSPARK_PYTHON, else spark.pyspark.python, else this interpreter (local Spark) or `python3` (cluster)

Spark looks that name up on the driver's machine too, where sources and sinks are planned. There it has to be
the interpreter that runs the pipeline, whatever the name means on the workers:

- a bare name (`python3`) finds a script of ours first, by the PATH of the JVM;
- a relative path (`./environment/bin/python`, as Spark's users ship whole environments) that is not here
  finds a script of ours in the directory in which the JVM is started;
- an absolute path must be here.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tailrace.model import ConfigError

PYTHON = "PYSPARK_PYTHON"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
PYTHON_CONF = "spark.pyspark.python"
CLUSTER_DEFAULT = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The name that Spark is given, and what lets the driver's JVM find it."""

    name: str
    path_dir: Path | None = None  # goes to the front of the JVM's PATH
    start_dir: Path | None = None  # the JVM starts in it

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables that the JVM and pyspark are started with."""
        kept = {key: value for key, value in given.items() if key != DRIVER_PYTHON}
        if self.path_dir is not None:
            kept["PATH"] = os.pathsep.join([str(self.path_dir), given.get("PATH", os.defpath)])
        return {**kept, PYTHON: self.name}


def plan_name(environment: Mapping[str, str], conf: Mapping[str, str], *, is_local: bool) -> str:
    """The name of the Python that Spark runs."""
    given = environment.get(PYTHON) or conf.get(PYTHON_CONF)
    return given or (sys.executable if is_local else CLUSTER_DEFAULT)


def make_interpreter(name: str, *, cache: Path) -> Interpreter:
    """Make what the driver's machine needs for a name; ConfigError if it cannot have it."""
    path = PurePosixPath(name)
    if path.is_absolute():
        if not os.access(name, os.X_OK):
            raise ConfigError(
                f"{PYTHON}={name} is not on this machine, and Spark plans its sources here with the Python"
                f" that the workers have. Put a link of that name here: ln -s {shlex.quote(sys.executable)}"
                f" {shlex.quote(name)}"
            )
        return Interpreter(name=name)
    if ".." in path.parts:
        raise ConfigError(f"{PYTHON}={name} leaves the directory of the executor. Give an absolute path")
    folder = cache / f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:8]}"
    if "/" not in name:
        _make_script(folder / "bin" / name)
        return Interpreter(name=name, path_dir=folder / "bin")
    if os.access(name, os.X_OK):
        return Interpreter(name=name)
    _make_script(folder / "start" / path)
    return Interpreter(name=name, start_dir=folder / "start")


def _make_script(place: Path) -> None:
    """A link would not do: a virtual environment is recognised by the folder of its interpreter."""
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and place.read_text(encoding="utf-8") == text:
        return
    draft = place.with_name(f".{place.name}-{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(place)
