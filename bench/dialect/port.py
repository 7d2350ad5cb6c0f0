"""What a dialect is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bench.load import Part, WireJob
from tailrace.bench.wire import Lane, LoadError


class Unsupported(LoadError):
    """The server has no counterpart for this load; the message says why."""


class Dialect(ABC):
    """The lanes of one job, and what they need on the server."""

    def __init__(self, job: WireJob) -> None:
        self.job = job

    @abstractmethod
    def lanes(self, part: Part, *, name: str) -> list[Lane]:
        """Connections that are ready to send, all called `name`; what they write to is called so too."""

    @abstractmethod
    def clean(self) -> None:
        """Delete whatever `lanes` made on the server."""
