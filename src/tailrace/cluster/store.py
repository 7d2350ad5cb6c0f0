"""The store port: keys with JSON values, changed by compare-and-swap.

Everything that the nodes of a cluster agree on is kept under such keys; `metadata` is the typed layer above.

    cluster                  {"format": 1, "id": ...}
    names/<name>             {"topic": <id>}
    topics/<id>              {"configs": {...}, "internal": ..., "name": ..., "partitions": <count>}
    partitions/<id>/<n>      {"epoch": ..., "isr": [...], "leader": ..., "replicas": [...]}
    deleted/<id>             {"name": ...}: the topic is gone, its logs are being removed
    ids/producer             {"next": ...}
    settings/broker/<node>   {<name>: <text>}: what clients changed of a node, or of all nodes (no number)
    settings/group/<name>    {<name>: <text>}: what clients set for a consumer group
    users/<name>             {"enabled": ..., "verifiers": {...}}: who may log in (`users`)
    disabled/<principal>     {}: a principal of a certificate or a JWT that may not come (`disabled`)
    acls/<id>                {"principal": ..., "operation": ..., ...}: who may do what (`acls`)
    tokens/<id>              {"digest": ..., "owner": ..., "scope": [...], ...}: API tokens (`tokens`)
    quotas/<entity>          {<name>: <number>}: how much users, client ids and addresses may ask (`quotas`)
    security/fake_salts      {"key": ...}: makes the salts of users that do not exist
    security/token_keys      {"keys": [...]}: what the digests of API tokens are made under

A store has one revision, which grows by one with every commit. The version of a key is the revision of the
commit that wrote it last, and ABSENT for a key that does not exist. A key that was deleted and written again
never has an earlier version, so a version that still holds proves that nothing came between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

METADATA = "metadata.sqlite"
"""The file of a single node's store, in its data directory."""

ABSENT = 0
"""The version of a key that does not exist."""


class Entry(NamedTuple):
    """The value of a key, a JSON text, and its version."""

    value: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a store holds at one revision; revision 0 is a store that was never written."""

    revision: int = 0
    entries: Mapping[str, Entry] = field(default_factory=dict)  # in the order of their keys


class Store(Protocol):
    """Keeps keys and values. What `commit` returned from is durable."""

    async def read(self, prefix: str = "") -> Rows:
        """Every key that begins with `prefix`, at one revision."""

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        """Write `puts` and remove `deletes` in one step, if every key in `checks` has the version given.

        Returns the new revision. Returns None if a version is another one: then nothing has changed, and the
        caller reads and plans again. A key is not in both `puts` and `deletes`; to delete a key that does not
        exist is harmless.
        """

    async def close(self) -> None:
        """Let go; closing twice is harmless."""
