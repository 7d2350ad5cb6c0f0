"""Transactional ids of the node, for callers that have no name of their own: REST and native sessions.

An id is taken for one transaction, or for several one after the other, and belongs to its caller alone until
it is given back. It is given back in any state: what is still open is aborted at once.

    take                 a free id that is idle; else a new name; else wait until one is given back
    __tailrace-<node id>-<n>, n from 0

- Names are used again after a start. The first use in a process is an InitProducerId, which moves the epoch:
  what an earlier process had sequenced for the name cannot go on. What that process left open is aborted when
  the coordinator has read its topic, because its callers are gone.
- The id that was given back last is taken first. So few ids are in use, and each costs the partitions that it
  writes to one producer entry.
- An id whose transaction is not complete (a log refuses its markers) is passed over, and not waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.limits import RESERVED_PREFIX
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import Identity
from tailrace.model import BrokerError, BrokerId, ErrorCode
from tailrace.model.session import INTERNAL, Principal
from tailrace.runtime import Supervisor


class Pooled(NamedTuple):
    """A transactional id that belongs to one caller, and the identity with which it begins."""

    transactional_id: str
    identity: Identity


class IdPool:
    """The ids of one node. Construct and use it inside one event loop."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        *,
        node_id: BrokerId,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        config = coordinator.config
        self._coordinator = coordinator
        self._prefix = f"{RESERVED_PREFIX}{node_id}-"
        self._ids_max = config.pooled_ids_max
        self._wait_s = config.pool_wait_ms / 1000
        self._timeout_ms = min(config.pooled_timeout_ms, config.timeout_ms_max)
        self._named = 0  # names that were used by this process
        self._free: list[str] = []  # of these; the one that was given back last is the last
        self._taken: dict[str, Principal] = {}  # and by whom
        self._waiters: deque[asyncio.Future[str]] = deque()
        self._tasks = Supervisor(on_failure)
        self._closed = False

    def __repr__(self) -> str:
        return f"<IdPool {self._prefix}*, {len(self._taken)} of at most {self._ids_max} taken>"

    def start(self) -> None:
        """Abort what the callers of an earlier process left open, as soon as it is known."""
        self._tasks.start("abort what earlier callers left open", self._abandon_orphans())

    async def close(self) -> None:
        """Give out no id any more."""
        self._closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(_stopping())
        await self._tasks.stop()

    async def take(self, owner: Principal = INTERNAL.principal) -> Pooled:
        """An id for this caller alone, ready for its first transaction; `give_back` must follow.

        `owner` is the only user that may ask for its transactions later (`check_owner`).
        REQUEST_TIMED_OUT if none becomes free in time, or what the coordinator says.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                return await self._take(owner)
        except TimeoutError as error:
            raise BrokerError(
                f"no transactional id of the node became free in {self._wait_s:g} s: {len(self._taken)} of "
                f"at most {self._ids_max} are in use. Try again later",
                code=ErrorCode.REQUEST_TIMED_OUT,
            ) from error

    def give_back(self, pooled: Pooled) -> None:
        """The caller is done with its id, whatever the state of its transaction: what is open is aborted."""
        name = pooled.transactional_id
        del self._taken[name]  # KeyError: given back twice, which is a bug
        self._coordinator.abandon(name)
        self._release(name)

    def check_owner(self, transactional_id: str, user: Principal) -> None:
        """TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an id that another user has taken."""
        if self._taken.get(transactional_id, user) != user:
            raise BrokerError(
                f"transactional id {transactional_id!r} is in use by another user",
                code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            )

    # ---- inside

    async def _take(self, owner: Principal) -> Pooled:
        while not self._closed:
            found = self._find_idle(owner)
            if found is not None:
                return found
            is_new = self._named < self._ids_max
            if is_new:
                name = f"{self._prefix}{self._named}"
                self._named += 1
            else:
                name = self._free.pop(0) if self._free else await self._wait_released()
            self._taken[name] = owner
            try:
                return await self._init(name, is_new=is_new)
            except BaseException as error:
                del self._taken[name]
                self._release(name)
                if not (is_new and _is_not_complete(error)):
                    raise  # else: an earlier process left it so; the next name will do
        raise _stopping()

    def _find_idle(self, owner: Principal) -> Pooled | None:
        for index in reversed(range(len(self._free))):
            identity = self._coordinator.idle_identity(self._free[index])
            if identity is not None:
                name = self._free.pop(index)
                self._taken[name] = owner
                return Pooled(name, identity)
        return None

    async def _init(self, name: str, *, is_new: bool) -> Pooled:
        identity = None if is_new else self._coordinator.idle_identity(name)
        if identity is None:
            await self._coordinator.wait_loaded()
            identity = await self._coordinator.init(name, timeout_ms=self._timeout_ms)
        return Pooled(name, identity)

    async def _wait_released(self) -> str:
        waiter: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())  # it came at the very moment at which the caller gave up
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _release(self, name: str) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(name)
                return
        self._free.append(name)

    async def _abandon_orphans(self) -> None:
        await self._coordinator.wait_loaded()
        for each in self._coordinator.list():
            name = each.transactional_id
            if name.startswith(self._prefix) and name not in self._taken:
                self._coordinator.abandon(name)


def _is_not_complete(error: BaseException) -> bool:
    return isinstance(error, TransactionRefused) and error.situation is Situation.NOT_COMPLETE


def _stopping() -> BrokerError:
    return BrokerError("the node is stopping", code=ErrorCode.BROKER_NOT_AVAILABLE)
