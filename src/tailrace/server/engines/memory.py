"""The memory engine: rings and metadata that end with the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailrace.server.engines.port import Description, Opened, StandBy

if TYPE_CHECKING:
    from tailrace.broker.health import Finding
    from tailrace.runtime import Clock
    from tailrace.server.config import ServerConfig
    from tailrace.server.setting import Setting


class MemoryEngine:
    """What topics may set for it is `tailrace.storage.memory.option`."""

    name = "memory"
    doc = "keeps a bounded ring per partition and forgets it at the end"

    def settings(self) -> Sequence[Setting]:
        return ()

    def check(self, _: ServerConfig) -> None:
        """It needs no settings of its own."""

    def describe(self, _: ServerConfig) -> Description:
        return Description(name=self.name, place="memory", durable=False)

    async def open(
        self,
        _: ServerConfig,
        *,
        clock: Clock,
        owns_loop: bool,  # noqa: ARG002
        stand_by: StandBy,  # noqa: ARG002
    ) -> Opened:
        from tailrace.cluster import MemoryStore
        from tailrace.storage.memory import MemoryStorage

        return Opened(storage=MemoryStorage(clock=clock), store=MemoryStore())

    def examine(self, _: ServerConfig) -> Iterator[Finding]:
        return iter(())
