"""The audit topic: entries of `security.audit` as JSON records, in the order in which they happened.

    __tailrace_audit, one partition, kept for 90 days
    {"time_ms": 1763629200000, "event": "login", "result": "failed", "principal": "User:alice",
     "address": "192.0.2.7", "listener": "kafka", "mechanism": "PLAIN", "operation": "", "resource": "",
     "count": 12}

The topic is made when the broker starts. While it cannot be written (the disk is full, the topic is
quarantined), entries wait in the bounded queue of `Audit` and are tried again; nothing else waits for them.
Clients can read the topic where they have the right to, and nothing more: it is the broker's own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.broker.internal.log import InternalLog
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.session import INTERNAL
from tailrace.records import NewRecord
from tailrace.runtime import Supervisor, wait_at_most
from tailrace.security.audit import FOLDED_MS, OK, Audit, Entry, event_of

logger = logging.getLogger(__name__)

AUDIT_TOPIC: Final = "__tailrace_audit"
RETENTION_MS: Final = 90 * 24 * 3_600_000
AUDIT_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "retention.bytes": "-1",
    "max.message.bytes": str(1 << 20),
}
"""All of them set: a change of the node's defaults must not shorten the log."""

_BATCH_MAX: Final = 500
_RETRY_S: Final = 5.0
_LAST_S: Final = 2.0


class AuditLog:
    """Writes what an `Audit` took; from `start` to `close`."""

    def __init__(
        self, audit: Audit, log: InternalLog, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._audit = audit
        self._log = log
        self._tasks = Supervisor(on_failure)
        self._closing = asyncio.Event()
        self._unwritten: list[Entry] = []
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<AuditLog of {self._audit}>"

    def start(self) -> None:
        """Begin with an entry of its own: that nothing was written before is then no gap."""
        if self._audit.is_on:
            self._audit.record(event_of(INTERNAL, what="audit.start", result=OK))
            self._tasks.start("audit", self._run())

    async def close(self) -> None:
        """Write what is there, as far as that takes no long time; entries that come later are lost."""
        if self._audit.is_on:
            self._audit.record(event_of(INTERNAL, what="audit.stop", result=OK))
            self._audit.close()
            self._closing.set()
            try:
                async with asyncio.timeout(_LAST_S):
                    await self._write_all()
            except (TimeoutError, StorageError):
                logger.warning("audit entries lost: the audit topic could not be written at the end")
        await self._tasks.stop()

    async def _run(self) -> None:
        while not self._closing.is_set():
            await wait_at_most(self._audit.arrived, FOLDED_MS / 1000)
            self._audit.arrived.clear()
            if self._closing.is_set():
                return
            if not await self._write_all():
                await wait_at_most(self._closing, _RETRY_S)
                self._audit.arrived.set()

    async def _write_all(self) -> bool:
        """Write every entry that is there; False if the topic cannot be written now."""
        while True:
            self._unwritten = self._unwritten or self._audit.take_nowait(_BATCH_MAX)
            if not self._unwritten:
                return True
            try:
                await self._write(self._unwritten)
            except BrokerError as error:
                if not self._is_failing:
                    logger.error("audit entries wait: the audit topic cannot be written: %s", error)
                self._is_failing = True
                return False
            self._is_failing = False
            self._unwritten = []

    async def _write(self, entries: Sequence[Entry]) -> None:
        await self._log.ensure()
        if not self._log.leads(0):
            raise BrokerError("its partition is not led here", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = self._log.sequence(0, [record_of(each) for each in entries])
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log.acknowledged(0, end, durable)
        await durable


def record_of(entry: Entry) -> NewRecord:
    """An entry as it stands in the topic."""
    return entry.time_ms, None, json.dumps(fields_of(entry), separators=(",", ":")).encode(), ()


def fields_of(entry: Entry) -> dict[str, Any]:
    event = entry.event
    return {
        "time_ms": entry.time_ms,
        "event": event.what,
        "result": event.result,
        "principal": event.principal,
        "address": event.host,
        "listener": event.listener,
        "mechanism": event.mechanism,
        "operation": event.operation,
        "resource": event.resource,
        "count": entry.times,
    }


def check_kept(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Whether a client may change the settings of the audit topic like this: it may be kept longer."""
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    kept_ms = int(after.get("retention.ms", "0"))
    if changed - {"retention.ms"} or not (kept_ms == -1 or kept_ms >= RETENTION_MS):
        raise BrokerError(
            f"{AUDIT_TOPIC} is kept for 90 days at least: of its settings only retention.ms can be changed, "
            f"to -1 or to {RETENTION_MS} and more",
            code=ErrorCode.POLICY_VIOLATION,
        )
