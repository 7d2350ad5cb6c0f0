"""The storage engines that a node may run on, by name: `storage.engine`.

`port`       what an engine is to a node: its settings, what it says of itself, how it is opened
`directory`  a data directory that cannot be used
`segment`    files in the data directory, and metadata beside them
`memory`     rings in memory; nothing outlives the process
`tiered`     logs and metadata in PostgreSQL, Redis as a cache; `tiered_checkup`: what doctor tells of them

No module outside this package asks which engine runs: it asks the engine. What an engine needs is
imported when it is opened or looked at.
"""

from tailrace.server.engines.memory import MemoryEngine
from tailrace.server.engines.port import Description, Engine, Opened, StandBy
from tailrace.server.engines.segment import SegmentEngine
from tailrace.server.engines.tiered import TieredEngine

ENGINES: dict[str, Engine] = {each.name: each for each in (SegmentEngine(), MemoryEngine(), TieredEngine())}
"""The first one is the default."""

__all__ = ["ENGINES", "Description", "Engine", "Opened", "StandBy"]
