"""The metadata store in PostgreSQL, beside the logs of the tiered engine and fenced by its writer's epoch.

A broker that was deposed can therefore change no topic either. Every entry has the checksum that the file of
`database` has, and the head has their number and the XOR of all: a row that was changed, lost or brought back
by hand is found when everything is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tailrace.cluster.database import checksum
from tailrace.cluster.store import ABSENT, Entry, Rows
from tailrace.model import StorageError
from tailrace.postgres import Connection, Pool
from tailrace.storage.tiered.writer import Writer

_ALL = 'SELECT key, value, version, crc FROM tailrace.metadata ORDER BY key COLLATE "C"'
_SOME = (
    "SELECT key, value, version, crc FROM tailrace.metadata WHERE starts_with(key, $1)"
    ' ORDER BY key COLLATE "C"'
)
_HEAD = "SELECT revision, entries, digest FROM tailrace.metadata_head"
_PUT = """
INSERT INTO tailrace.metadata (key, value, version, crc)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version, crc = excluded.crc
"""


class PostgresStore:
    """Keys and values in the table `metadata`; the engine closes the connections."""

    def __init__(self, writer: Writer, pool: Pool) -> None:
        self._writer = writer
        self._pool = pool

    def __repr__(self) -> str:
        return f"<PostgresStore in {self._pool.dsn}>"

    def __str__(self) -> str:
        return str(self._pool.dsn)

    async def read(self, prefix: str = "") -> Rows:
        async with (
            self._pool.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            head = await connection.fetchrow(_HEAD)
            rows = await (connection.fetch(_SOME, prefix) if prefix else connection.fetch(_ALL))
        if head is None:
            raise self._damaged("its head is missing")
        entries: dict[str, Entry] = {}
        digest = 0
        for key, value, version, crc in rows:
            entry = entries[key] = Entry(value, version)
            if checksum(key, entry) != crc:
                raise self._damaged(f"the checksum of an entry does not hold: {key}")
            digest ^= crc
        if not prefix and (len(entries) != head[1] or digest != head[2]):
            raise self._damaged(f"it holds {len(entries)} of {head[1]} entries, or outdated ones")
        return Rows(revision=head[0], entries=entries)

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        return await self._writer.run(_Commit(checks=checks, puts=puts, deletes=deletes)) or None

    async def close(self) -> None:
        """The connections are the engine's."""

    def _damaged(self, reason: str) -> StorageError:
        return StorageError(
            "read metadata in", str(self), reason, hint="Restore the database from a backup of one moment"
        )


class _Commit:
    """A commit as a change of the writer: returns the new revision, or 0 if a version is another one."""

    advanced = 0

    def __init__(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str]
    ) -> None:
        self._checks = checks
        self._puts = puts
        self._deletes = deletes
        self._revision = 0  # that the newest attempt was to make

    async def apply(self, connection: Connection, epoch: int) -> int:
        self._revision = 0
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", epoch)
            head = await connection.fetchrow(_HEAD)
            assert head is not None
            touched = sorted({*self._checks, *self._puts, *self._deletes})
            known = {
                row[0]: (row[1], row[2])
                for row in await connection.fetch(
                    "SELECT key, version, crc FROM tailrace.metadata WHERE key = ANY($1::text[])", touched
                )
            }
            if any(known.get(key, (ABSENT, 0))[0] != version for key, version in self._checks.items()):
                return 0
            self._revision = head[0] + 1
            await self._write(connection, known, entries=head[1], digest=head[2])
        return self._revision

    async def find(self, connection: Connection, epoch: int) -> int | None:  # noqa: ARG002
        """Only the writer makes revisions, one after the other: whether ours is there tells."""
        head = await connection.fetchrow(_HEAD)
        return self._revision if self._revision and head is not None and head[0] == self._revision else None

    async def _write(
        self, connection: Connection, known: Mapping[str, tuple[int, int]], *, entries: int, digest: int
    ) -> None:
        for key in {*self._puts, *self._deletes}:
            if key in known:
                entries, digest = entries - 1, digest ^ known[key][1]
        crcs = [checksum(key, Entry(value, self._revision)) for key, value in self._puts.items()]
        for crc in crcs:
            entries, digest = entries + 1, digest ^ crc
        await connection.execute(
            "DELETE FROM tailrace.metadata WHERE key = ANY($1::text[])", list(self._deletes)
        )
        versions = [self._revision] * len(crcs)
        await connection.execute(_PUT, list(self._puts), list(self._puts.values()), versions, crcs)
        await connection.execute(
            "UPDATE tailrace.metadata_head SET revision = $1, entries = $2, digest = $3",
            self._revision,
            entries,
            digest,
        )
