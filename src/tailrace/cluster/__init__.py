"""What the nodes agree on, and where it is kept.

`store`         the port: keys with JSON values, changed by compare-and-swap
`memory`        a store that lives as long as its process
`sqlite`        a store in one file, for a single node; `database` is the file, `migration` reads schema 1,
                `replacement` puts a new file in the place of an old one
`record`        topics, partitions and ids as keys and values
`metadata`      the broker's metadata port over any store
`users`         the port for users over the same store; `tokens` that for their API tokens
`quotas`        the port for quotas over the same store
`postgres_users`  the port for users over PostgreSQL; `user_following` takes over what others change there
`users`         the port for users over the same store; `tokens` that for their API tokens, `acls` that for
                access control entries, `disabled` that for principals that may not come
`mirror`        a store whose content is in cluster.json too (`image_file`)
`copying`       a copy for a backup; `restored` is what becomes of it when it is restored
`rebuild`       metadata made again from cluster.json and the logs
`verification`  whether metadata is whole and fits the logs; `reading` reads it without touching it
"""

from tailrace.cluster.acls import MetadataAcls
from tailrace.cluster.disabled import MetadataDisabled
from tailrace.cluster.memory import MemoryStore
from tailrace.cluster.metadata import StoredMetadata
from tailrace.cluster.mirror import MirroredStore
from tailrace.cluster.quotas import MetadataQuotas
from tailrace.cluster.sqlite import SqliteStore
from tailrace.cluster.store import ABSENT, METADATA, Entry, Rows, Store
from tailrace.cluster.tokens import MetadataTokens
from tailrace.cluster.users import MetadataUsers

__all__ = [
    "ABSENT",
    "METADATA",
    "Entry",
    "MemoryStore",
    "MetadataAcls",
    "MetadataDisabled",
    "MetadataQuotas",
    "MetadataTokens",
    "MetadataUsers",
    "MirroredStore",
    "Rows",
    "SqliteStore",
    "Store",
    "StoredMetadata",
]
