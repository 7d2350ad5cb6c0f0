"""Pulls by HTTP: a client is gone with its answer, so the service is the member, and holds what it gave out.

All pulls of a subscription share one member, "http". It joins with the first pull. It leaves when the service
stops, and when nobody has pulled for `pull_idle_s` and it holds nothing: others may be waiting for its place,
or for the keys that are its own. Who leaves like that has failed with nothing, and what he holds goes to
others at once.

A message that was given out is held until it is settled or its lock runs out, as everywhere. A client that is
gone before its answer gives back what was meant for it:

    to whom                               when
    the next pull that waits              if there is one
    any member; a service that holds      else
      nothing then leaves, too
    the next pull, whenever it comes      at_most_once: nobody else may have it any more

None of that counts as a delivery that failed: the message never left the service. A place that keeps others
from theirs, as in every mode but shared, is given up all the same, and the log says what was lost with it.

Only one may be in an exclusive subscription, and be first in one with failover. A service that nobody may be
asking any more must not stand in line there, so a pull is refused while somebody else is in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from starlette.requests import Request

from tailrace.broker.subscriptions.definition import Guarantee, Mode
from tailrace.broker.subscriptions.delivery import Delivery, Notice
from tailrace.broker.subscriptions.member import Member
from tailrace.broker.subscriptions.pulling import Pull, Pulls
from tailrace.broker.subscriptions.retained import size_of
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.http.disconnect import wait_done
from tailrace.http.error import Code, HttpError
from tailrace.http.service import HttpService

logger = logging.getLogger(__name__)

_NAME = "http"


class Asked(Pull):
    """One pull, and what it has got."""

    __slots__ = ("answered", "bytes", "deliveries")

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.deliveries: list[Delivery] = []
        self.bytes = 0
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.bytes += size_of(delivery.record)


class Puller:
    """The service as a member of one subscription (`broker.subscriptions.delivery.Recipient`)."""

    def __init__(self, service: HttpService, subscription: Subscription) -> None:
        self.service = service
        self.subscription = subscription
        self._pulls: Pulls[Asked] = Pulls(
            subscription, self, patience_s=service.config.request_timeout_s, on_end=self._answer
        )
        self._kept: list[Delivery] = []  # at_most_once: came for a client that is gone
        self._deleted = ""  # why there is no subscription any more
        self._loop = asyncio.get_running_loop()
        self._used_at = self._loop.time()
        self._watch = self._loop.create_task(
            self._look_after(), name=f"http pulls of {subscription.config.name}"
        )

    def __repr__(self) -> str:
        return f"<Puller of {self.subscription}, {len(self._pulls)} pulls>"

    @property
    def member(self) -> Member:
        return self._pulls.member

    async def pull(
        self, request: Request, *, count: int, wait_ms: int, admit: Callable[[], object]
    ) -> list[Delivery]:
        """Up to so many messages; none when its time is over, the service stops or the client is gone.

        `admit` raises if the session may not have them any more; then they go to others.
        """
        asked = self._ask(count, wait_ms=wait_ms)
        is_taken = False
        try:
            if await wait_done(asked.answered, request.receive):
                admit()
                is_taken = True
        finally:
            if not is_taken:
                self._abandon(asked)
        if self._deleted and not asked.deliveries:
            raise HttpError(Code.SUBSCRIPTION_NOT_FOUND, self._deleted)
        return asked.deliveries

    def leave(self) -> None:
        """Answer every pull and give everything back; the next pull makes another puller."""
        self.member.leave(failed=False)
        self._end()
        if self._kept:
            logger.warning(
                "messages not delivered, and never will be (at_most_once): subscription=%s count=%d "
                "their clients were gone",
                self.subscription.config.name,
                len(self._kept),
            )
            self._kept.clear()

    # ---- the subscription's side

    @property
    def name(self) -> str:
        return _NAME

    def is_open(self) -> bool:
        return True  # what it takes is bounded by what was asked for

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Share messages out among the pulls."""
        rest = _put(deliveries, self._pulls.share_out(deliveries))
        self._end_large()
        self._pulls.settle()
        self._keep_or_return(rest)

    def notice(self, notice: Notice) -> None:
        """Nobody listens; but what a seek makes void, and the end, change what is answered."""
        if notice.event == "seek":
            self._kept = [each for each in self._kept if not self._is_void(each, notice)]
        elif notice.event == "deleted":
            name = self.subscription.config.name
            self._deleted = f"subscription {name!r} does not exist any more: {notice.reason}"
            self._end()

    # ---- inside

    def _is_void(self, kept: Delivery, seek: Notice) -> bool:
        """Whether it is of a partition that goes on from elsewhere; dead letters are never moved."""
        is_own = kept.source.topic == self.subscription.config.topic
        return is_own and seek.partition in (-1, kept.source.partition)

    def _end(self) -> None:
        self._pulls.end_all()
        self._watch.cancel()

    def _ask(self, count: int, *, wait_ms: int) -> Asked:
        self._used_at = self._loop.time()
        asked = Asked(count)
        for delivery in self._kept[:count]:
            asked.put(delivery)
        asked.got = len(asked.deliveries)
        del self._kept[:count]
        if asked.missing:
            self._pulls.ask(asked, wait_ms=0 if asked.got else wait_ms)
        else:
            self._answer(asked)
        return asked

    def _answer(self, asked: Asked) -> None:
        self._used_at = self._loop.time()
        if not asked.answered.done():
            asked.answered.set_result(None)

    def _end_large(self) -> None:
        """A pull that has a lot is full, however few messages that are."""
        for asked in self._pulls:
            if asked.bytes >= self.service.config.read_bytes_max:
                self._pulls.end(asked)

    def _abandon(self, asked: Asked) -> None:
        """The client is gone: its place is free, and what it got goes to others."""
        self._pulls.drop(asked)
        given, asked.deliveries = asked.deliveries, []
        rest = _put(given, self._pulls.hand_on(given))
        self._end_large()
        self._pulls.settle()
        self._keep_or_return(rest)

    def _keep_or_return(self, rest: Sequence[Delivery]) -> None:
        """What no pull waits for."""
        if not rest:
            return
        if self.subscription.config.delivery is Guarantee.AT_MOST_ONCE:
            self._kept.extend(rest)
            return
        for each in rest:
            place, offset = each.source, each.record.offset
            self.member.give_back(place.topic, place.partition, each.epoch, [(offset, offset + 1)])
        if not self.member.held and not len(self._pulls):
            self.leave()  # what it gave back may have a key that is its own, or be for the first in line

    async def _look_after(self) -> None:
        """Leave when it is time to."""
        while not (self.service.is_stopping or self._is_idle()):
            rest_s = self._used_at + self.service.config.pull_idle_s - self._loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_s if rest_s > 0 else self.service.config.pull_idle_s):
                    await self.service.wait_stopping()
        self.leave()

    def _is_idle(self) -> bool:
        if len(self._pulls) or self.member.held > 0:
            return False
        if self._kept and self.subscription.config.mode is Mode.SHARED:
            return False
        return self._loop.time() - self._used_at >= self.service.config.pull_idle_s


def find_puller(service: HttpService, subscription: Subscription) -> Puller | None:
    """The service's place in a subscription, if it has one."""
    for member in subscription.members:
        recipient = member.recipient
        if isinstance(recipient, Puller) and recipient.service is service:
            return recipient
    return None


def join_pulls(service: HttpService, subscription: Subscription) -> Puller:
    """The service's place in a subscription; taken, if need be and nobody is in the way."""
    known = find_puller(service, subscription)
    if known is not None:
        return known
    if service.is_stopping:
        raise HttpError(Code.BROKER_NOT_AVAILABLE, "the node is stopping. Pull again later")
    mode = subscription.config.mode
    if mode in (Mode.EXCLUSIVE, Mode.FAILOVER) and subscription.members:
        holder = next(iter(subscription.members)).recipient.name
        raise HttpError(
            Code.INVALID_REQUEST,
            f"subscription {subscription.config.name} is {mode} and {holder} has it. Pull again when that "
            "has left, or pull from another subscription",
            status=409,
            details={"member": holder},
        )
    return Puller(service, subscription)


def _put(deliveries: Sequence[Delivery], shares: Iterable[Asked | None]) -> list[Delivery]:
    """Give each pull its share; what nobody waits for."""
    rest = []
    for delivery, asked in zip(deliveries, shares, strict=True):
        if asked is None:
            rest.append(delivery)
        else:
            asked.put(delivery)
    return rest
