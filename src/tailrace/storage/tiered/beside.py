"""Changes of the writer that are not part of a round: snapshots, and the names of topics beside logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.postgres import Connection

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog


class TakenSnapshot(NamedTuple):
    """The state of a log at an offset, as it was taken."""

    log: TieredLog
    offset: int
    truncations: int  # so far: after another one the state is of a history that is undone
    data: bytes

    @property
    def holds(self) -> bool:
        return self.log.truncations == self.truncations and not self.log.deleting


class WriteSnapshots:
    """Writes snapshots of what is durable, and keeps the two newest of each log."""

    advanced = 0

    def __init__(self, taken: Sequence[TakenSnapshot]) -> None:
        self._taken = taken

    async def apply(self, connection: Connection, epoch: int) -> bool:
        rows = [each for each in self._taken if each.holds]
        if not rows:
            return True
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", epoch)
            await connection.execute(
                "INSERT INTO tailrace.snapshots (log, next_offset, data)"
                " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])"
                " ON CONFLICT (log, next_offset) DO UPDATE SET data = excluded.data",
                [each.log.id for each in rows],
                [each.offset for each in rows],
                [each.data for each in rows],
            )
            await connection.execute(
                "DELETE FROM tailrace.snapshots AS old WHERE log = ANY($1::bigint[]) AND 2 <= ("
                "SELECT count(*) FROM tailrace.snapshots AS new"
                " WHERE new.log = old.log AND new.next_offset > old.next_offset)",
                [each.log.id for each in rows],
            )
        return True

    async def find(self, connection: Connection, epoch: int) -> bool | None:  # noqa: ARG002
        """It may always be done again."""
        return None


class WriteLabels:
    """Writes the names of topics into the rows of their logs."""

    advanced = 0

    def __init__(self, labels: Sequence[tuple[int, str]]) -> None:
        self._labels = labels

    async def apply(self, connection: Connection, epoch: int) -> bool:
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", epoch)
            await connection.execute(
                "UPDATE tailrace.logs SET topic = given.topic"
                " FROM unnest($1::bigint[], $2::text[]) AS given (log, topic)"
                " WHERE logs.log = given.log AND logs.topic <> given.topic",
                [log for log, _ in self._labels],
                [topic for _, topic in self._labels],
            )
        return True

    async def find(self, connection: Connection, epoch: int) -> bool | None:  # noqa: ARG002
        """It may always be done again."""
        return None
