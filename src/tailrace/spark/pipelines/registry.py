"""The pipelines there are: what each is for, and where it lives.

A pipeline is a typed config and a function, both in one module that is imported when it runs: what
imports pyspark and pyarrow takes seconds, and `--help` must not.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.model import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.progress import Observer


class Run(Protocol):
    """What every pipeline's function looks like; it returns a dataclass that tells what was reached."""

    def __call__(
        self, config: Any, *, spark: SparkSession, observe: Observer, stop: threading.Event | None
    ) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One kind of pipeline."""

    name: str
    summary: str
    module: str
    config: str  # the class's name there
    function: str  # and the function's
    needs_broker: bool = True  # one that works on a lake alone runs without

    def load_config(self) -> type[Any]:
        """The class of its config."""
        config = getattr(import_module(self.module), self.config)
        assert isinstance(config, type)
        return config

    def load_function(self) -> Run:
        """What runs it."""
        run: Run = getattr(import_module(self.module), self.function)
        return run


def _pipeline(name: str, summary: str, *, needs_broker: bool = True) -> Pipeline:
    return Pipeline(
        name=name,
        summary=summary,
        module=f"tailrace.spark.pipelines.{name}",
        config=f"{name.capitalize()}Config",
        function=name,
        needs_broker=needs_broker,
    )


PIPELINES: Mapping[str, Pipeline] = {
    pipeline.name: pipeline
    for pipeline in (
        _pipeline("archive", "Keep topics in a lake: Parquet files, every record exactly once."),
        _pipeline("replay", "Give the records of a lake back to a topic."),
        _pipeline("sql", "Run a query over topics as streams."),
        _pipeline(
            "compact", "Rewrite a lake's small files, and drop what is past its time.", needs_broker=False
        ),
        _pipeline("report", "Write a page with plots about a lake.", needs_broker=False),
    )
}


def find_pipeline(name: str, *, table: Mapping[str, Pipeline] = PIPELINES) -> Pipeline:
    """The pipeline of this name; ConfigError with the ones there are."""
    found = table.get(name)
    if found is None:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(table)}"
        raise ConfigError(f"{name!r} is not a pipeline: {hint}")
    return found
