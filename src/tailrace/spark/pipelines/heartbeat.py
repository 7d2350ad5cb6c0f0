"""The heartbeat of a run: a thread that tells the cluster how far the run is, and hears if it shall stop.

It writes the run's record every few seconds and whenever its state changes, and follows the topic for a stop
request (`run_record`). A broker that is away only delays it: whether the pipeline can go on without one is
for the pipeline to say. `end` waits for the last record to be written, but not for a broker that never
answered: pipelines that work on a lake alone run without one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from tailrace.client.credentials import from_environment
from tailrace.client.kafka import KafkaClient
from tailrace.client.tls import from_environment as tls_from_environment
from tailrace.model import TailraceError
from tailrace.records import BatchError
from tailrace.runtime import wait_at_most
from tailrace.spark.pipelines.progress import Progress, progress_fields
from tailrace.spark.pipelines.run_topic import ensure_topic, follow, forget_old_runs, write_entries
from tailrace.wire.json.run_record import (
    RUNNING,
    RunRecord,
    State,
    read_stop,
    run_key,
    stop_key,
    write_record,
)

logger = logging.getLogger(__name__)

BEAT_EVERY_S = 2.0
_AGAIN_S = 1.0
_END_S = 5.0
_REQUEST_TIMEOUT_S = 5.0
_FOLLOW_WAIT_MS = 1_000


class Heartbeat:
    """Tells of one run from `start` to `end`."""

    def __init__(
        self,
        bootstrap_servers: str,
        run: RunRecord,
        *,
        on_stop: Callable[[str], None],
        every_s: float = BEAT_EVERY_S,
    ) -> None:
        self.run = run  # changed in the pipeline's thread alone
        self._bootstrap_servers = bootstrap_servers
        self._on_stop = on_stop
        self._every_s = every_s
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()  # the state is another one: tell at once
        self._ended = asyncio.Event()  # and it was told, or never will be
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {run.name}", daemon=True)
        self._heard = False  # a broker has answered
        self._tried = threading.Event()  # whether one answers is known
        self._position: int | None = None  # where the topic is listened to

    def __repr__(self) -> str:
        return f"<Heartbeat of {self.run.name} {self.run.id}, {self.run.state}>"

    def start(self) -> None:
        self._thread.start()

    def observe(self, progress: Progress) -> None:
        """An observer for the pipeline: the next beat tells this."""
        self.run = msgspec.structs.replace(self.run, progress=progress_fields(progress))

    def end(self, *, state: State, error: str | None = None) -> None:
        """Tell how the run ended, and stop."""
        self.run = msgspec.structs.replace(self.run, state=state, error=error)
        self._set(self._changed)
        self._tried.wait(_END_S)
        if not self._heard:
            self._set(self._ended)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            logger.warning("the end of run %s could not be told to %s", self.run.id, self._bootstrap_servers)
            self._set(self._ended)

    def _set(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the loop is closed: the heartbeat has ended before, and said why
            self._loop.call_soon_threadsafe(event.set)

    # ---- in the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        ended = asyncio.ensure_future(self._ended.wait())
        beating = asyncio.ensure_future(self._beat_for_ever())
        await asyncio.wait({ended, beating}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, beating):
            task.cancel()
        await asyncio.gather(ended, beating, return_exceptions=True)
        if not beating.cancelled() and (error := beating.exception()) is not None:
            logger.error("the heartbeat of run %s failed: %s", self.run.id, error, exc_info=error)

    async def _beat_for_ever(self) -> None:
        told = ""
        while True:
            try:
                await self._beat_connected()
                return
            except (TailraceError, BatchError, OSError) as error:
                if str(error) != told:
                    logger.info("run %s cannot tell how it is: %s", self.run.id, error)
                told = str(error)
            self._tried.set()
            await asyncio.sleep(_AGAIN_S)

    async def _beat_connected(self) -> None:
        """Beat until the run has ended, or the broker is gone."""
        client = KafkaClient(
            self._bootstrap_servers,
            client_id="tailrace-pipeline",
            request_timeout_s=_REQUEST_TIMEOUT_S,
            credentials=from_environment(),
            tls=tls_from_environment(),
        )
        async with client:
            self._heard = True
            self._tried.set()
            await ensure_topic(client)
            _record, offset = await self._tell(client)
            self._position = offset if self._position is None else self._position
            await forget_old_runs(client)
            listening = asyncio.ensure_future(self._listen(client))
            beating = asyncio.ensure_future(self._beat(client))
            try:
                await asyncio.wait({listening, beating}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (listening, beating):
                    task.cancel()
                await asyncio.gather(listening, beating, return_exceptions=True)
            for task in (beating, listening):
                if not task.cancelled():
                    task.result()

    async def _beat(self, client: KafkaClient) -> None:
        """Ends when the end was told."""
        while (await self._tell(client))[0].state == RUNNING:
            await wait_at_most(self._changed, self._every_s)

    async def _tell(self, client: KafkaClient) -> tuple[RunRecord, int]:
        record = msgspec.structs.replace(self.run, at=datetime.now(UTC))
        return record, await write_entries(client, [(run_key(record.id), write_record(record))])

    async def _listen(self, client: KafkaClient) -> None:
        """Hear the stop request, also one that came while the broker was away. Ends only with an error."""
        wanted = stop_key(self.run.id)
        assert self._position is not None
        async for record in follow(client, self._position, wait_ms=_FOLLOW_WAIT_MS):
            self._position = record.offset + 1
            if record.key != wanted or record.value is None:
                continue
            request = read_stop(bytes(record.value))
            if request is not None:
                self._on_stop(request.by)
