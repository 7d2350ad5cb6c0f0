"""A setting of topics that only one engine obeys; the engine declares it in a table of its own.

The values reach a log as `LogConfig.options`, by name. The broker shows every option as a topic setting of
the same name, whichever engine runs: a topic keeps its settings when the engine is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.storage.api import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOption:
    """A whole number; its name is the topic's setting and the node-wide one."""

    name: str
    default: int
    doc: str
    at_least: int = -1

    def of(self, config: LogConfig) -> int:
        """The value in force for a log."""
        return config.options.get(self.name, self.default)
