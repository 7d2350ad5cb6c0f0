"""The SQL of a round, and of the look-up that tells whether it was carried out."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.postgres import Connection, Row
from tailrace.records import crc32c
from tailrace.storage.tiered.chunk import Chunk, ChunkName, batches_of, check_chunk
from tailrace.storage.tiered.entry import Control, Create, Delete, Trim, Truncate
from tailrace.storage.tiered.round import Draft, Round, make_chunk

COLUMNS = (
    "class",
    "log",
    "base_offset",
    "next_offset",
    "appended_ms",
    "max_timestamp",
    "writer_epoch",
    "round",
    "size",
    "crc",
    "data",
)
NAME_COLUMNS = "class, log, base_offset, next_offset, appended_ms, max_timestamp, writer_epoch, size, crc"
_APPEND = "SELECT tailrace.append_round($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"


class RoundChange:
    """A round as a change of the writer; returns the chunks that it wrote."""

    def __init__(self, round_: Round, *, copy_bytes_min: int) -> None:
        self._round = round_
        self._copy_bytes_min = copy_bytes_min
        self._made: list[Chunk] = []  # of the newest attempt
        self.advanced = 0

    async def apply(self, connection: Connection, epoch: int) -> list[Chunk]:
        round_ = self._round
        self._made, self.advanced = [], 0
        if not round_.controls and round_.size < self._copy_bytes_min:
            await self._append(connection, list(round_.drafts), epoch)
            return self._made
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", epoch)
            if not round_.synced:
                await connection.execute("SET LOCAL synchronous_commit = off")
            for step in round_.steps:
                if isinstance(step, list):
                    await self._copy(connection, step, epoch + self.advanced)
                else:
                    await self._control(connection, step)
            if round_.controls:
                await connection.execute(
                    "INSERT INTO tailrace.control_rounds (writer_epoch, round) VALUES ($1, $2)",
                    epoch,
                    round_.number,
                )
        return self._made

    async def find(self, connection: Connection, epoch: int) -> list[Chunk] | None:
        """A round is there whole or not at all, so one row of it tells."""
        number = self._round.number
        if self._round.controls:
            found = await connection.fetchval(
                "SELECT 1 FROM tailrace.control_rounds WHERE writer_epoch = $1 AND round = $2", epoch, number
            )
        else:
            first = next(self._round.drafts)
            name = make_chunk(first, appended_ms=self._round.appended_ms, epoch=epoch).name
            found = await connection.fetchval(
                "SELECT 1 FROM tailrace.chunks WHERE class = $1 AND log = $2 AND base_offset = $3"
                " AND appended_ms = $4 AND writer_epoch = $5 AND round = $6",
                name.retention,
                name.log,
                name.base_offset,
                name.appended_ms,
                epoch,
                number,
            )
        return None if found is None else self._made

    async def _append(self, connection: Connection, drafts: Sequence[Draft], epoch: int) -> None:
        round_ = self._round
        chunks = [make_chunk(draft, appended_ms=round_.appended_ms, epoch=epoch) for draft in drafts]
        self._made = chunks
        names = [chunk.name for chunk in chunks]
        await connection.execute(
            _APPEND,
            epoch,
            round_.number,
            round_.appended_ms,
            round_.synced,
            [name.retention for name in names],
            [name.log for name in names],
            [name.base_offset for name in names],
            [name.next_offset for name in names],
            [name.max_timestamp for name in names],
            [name.size for name in names],
            [name.crc for name in names],
            [chunk.data for chunk in chunks],
        )

    async def _copy(self, connection: Connection, drafts: Sequence[Draft], epoch: int) -> None:
        chunks = [make_chunk(draft, appended_ms=self._round.appended_ms, epoch=epoch) for draft in drafts]
        self._made += chunks
        await insert_chunks(connection, chunks, number=self._round.number)

    async def _control(self, connection: Connection, control: Control) -> None:
        log = control.log
        match control:
            case Create():
                await connection.execute(
                    "INSERT INTO tailrace.logs (log, topic_id, partition) VALUES ($1, $2, $3)",
                    log.id,
                    log.partition_id.topic_id,
                    log.partition_id.partition,
                )
                await connection.execute(
                    "UPDATE tailrace.writer SET next_log = greatest(next_log, $1)", log.id + 1
                )
            case Delete():
                await connection.execute("UPDATE tailrace.logs SET deleted = true WHERE log = $1", log.id)
            case Trim():
                await connection.execute(
                    "UPDATE tailrace.logs SET start_offset = greatest(start_offset, $2),"
                    " end_floor = greatest(end_floor, $2) WHERE log = $1",
                    log.id,
                    control.offset,
                )
            case Truncate():
                await self._truncate(connection, control)

    async def _truncate(self, connection: Connection, cut: Truncate) -> None:
        """Cut the rows, split the chunk that holds the end, and give later chunks other names."""
        log, end, number = cut.log, cut.offset, self._round.number
        rows = await connection.fetch(
            f"DELETE FROM tailrace.chunks WHERE log = $1 AND next_offset > $2 RETURNING {NAME_COLUMNS},"
            " CASE WHEN base_offset < $2 THEN data END",
            log.id,
            end,
        )
        split = [chunk for row in rows if row[-1] is not None and (chunk := _head(read_chunk(row), log, end))]
        if split:
            await insert_chunks(connection, split, number=number)
        await connection.execute(
            "DELETE FROM tailrace.snapshots WHERE log = $1 AND next_offset > $2", log.id, end
        )
        await connection.execute(
            "UPDATE tailrace.logs SET start_offset = least(start_offset, $2), end_floor = $2 WHERE log = $1",
            log.id,
            end,
        )
        await connection.execute("UPDATE tailrace.writer SET epoch = epoch + 1")
        self.advanced += 1
        self._made = [
            chunk for chunk in self._made if chunk.name.log != log.id or chunk.name.next_offset <= end
        ]
        self._made += split


async def insert_chunks(connection: Connection, chunks: Sequence[Chunk], *, number: int) -> None:
    """Rows by COPY, in a transaction of the caller's."""
    await connection.copy_records_to_table(
        "chunks",
        schema_name="tailrace",
        columns=COLUMNS,
        records=[
            (
                name.retention,
                name.log,
                name.base_offset,
                name.next_offset,
                name.appended_ms,
                name.max_timestamp,
                name.writer_epoch,
                number,
                name.size,
                name.crc,
                data,
            )
            for name, data in chunks
        ],
    )


def read_name(row: Row) -> ChunkName:
    """Of a row that begins with NAME_COLUMNS."""
    return ChunkName(*(row[place] for place in range(9)))


def read_chunk(row: Row) -> Chunk:
    """Of a row that begins with NAME_COLUMNS and goes on with data; not checked."""
    return Chunk(read_name(row), row[9])


def _head(chunk: Chunk, log: object, end: int) -> Chunk | None:
    """The batches of a chunk that end at or before `end`, as a shorter chunk of the same day."""
    kept = [batch for batch in batches_of(check_chunk(chunk, log=log), log=log) if batch.next_offset <= end]
    if not kept:
        return None
    data = b"".join([batch.data for batch in kept])
    name = chunk.name._replace(next_offset=kept[-1].next_offset, size=len(data), crc=crc32c(data))
    return Chunk(name, data)
