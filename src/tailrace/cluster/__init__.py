"""Who knows what the nodes agree on: where metadata is kept.

`sqlite` keeps it for a single node, behind the port that `broker.ports` defines.
"""

from tailrace.cluster.sqlite import SqliteMetadata

__all__ = ["SqliteMetadata"]
