"""The HTTP listener inside somebody else's ASGI app: `Mount("/broker", broker.asgi())`.

A request comes in the loop of whoever serves that app, and is answered in the loop of the broker. Where both
are one, it is simply called; where the broker has its own, every message of the request crosses over:

    their loop   __call__ ........................ receive() ... send() ....... returns, raises
                    |                                 ^ |          ^ |             ^
    our loop        +--> task: app(scope, ...) -------+ +----------+ +-------------+

A caller that is cancelled cancels the task, and waits a moment until it is over. A broker that closes lets
the requests under way end for a while, then ends them; before it starts, and once it closed, it is not
available. Nothing here keeps pages of other sites out: that is for the app around it, which knows who may
call, or for `tailrace.http.guard.Guard`, which can be put in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tailrace.model import TailraceError

if TYPE_CHECKING:
    from tailrace.http import HttpApp

_T = TypeVar("_T")

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Serve: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

_CANCEL_DEADLINE_S = 5.0
_LOOK_S = 5.0
"""How often a request that crossed over looks whether there still is a loop that answers it."""


class Closed(TailraceError):
    """The broker was closed in the middle of an answer."""


class MountedApp:
    """An ASGI application that answers for a broker, started or not, in whichever loop it lives."""

    def __init__(self, find: Callable[[], tuple[asyncio.AbstractEventLoop, Serve] | None]) -> None:
        self._find = find  # the broker's loop, and what answers there; None: it does not run

    def __repr__(self) -> str:
        return f"<MountedApp {'not started' if self._find() is None else 'serves'}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        found = self._find()
        if found is None:
            await refuse_closed(scope, receive, send)
            return
        loop, serve = found
        if loop is asyncio.get_running_loop():
            await serve(scope, receive, send)
        else:
            await _cross(loop, serve, scope, receive, send)


class MountedService:
    """The app of one started broker and the requests that it answers, in the broker's loop."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        self._requests: set[asyncio.Task[None]] = set()
        app.service.metrics.sampler.start()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app.service.is_stopping:
            await refuse_closed(scope, receive, send)
            return
        is_begun = False

        async def send_noting(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        # A task of its own, which can be ended without ending whoever waits for it.
        request = asyncio.ensure_future(self._app(scope, receive, send_noting))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            await asyncio.wait({request})
        except asyncio.CancelledError:
            request.cancel()
            await asyncio.wait({request}, timeout=_CANCEL_DEADLINE_S)
            raise
        if not request.cancelled():
            request.result()
        elif is_begun:
            raise Closed("the broker was closed in the middle of an answer")
        else:
            await refuse_closed(scope, receive, send)

    async def close(self) -> None:
        """Let the requests under way come to their end, for a while."""
        service = self._app.service
        service.stop()
        if self._requests:
            await asyncio.wait(list(self._requests), timeout=service.config.close_grace_s)
        for request in list(self._requests):
            request.cancel()
        if self._requests:
            await asyncio.wait(list(self._requests), timeout=_CANCEL_DEADLINE_S)
        await service.metrics.sampler.stop()


async def refuse_closed(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no broker to ask."""
    from tailrace.http.app import refuse
    from tailrace.http.error import Code, HttpError

    message = "the broker is not started, or closed already. Use it in `with`, or call start()"
    await refuse(HttpError(Code.BROKER_NOT_AVAILABLE, message), scope, receive, send)


# ---- from loop to loop


async def _cross(
    loop: asyncio.AbstractEventLoop, serve: Serve, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer a request of this loop in another one."""
    outcome: Future[None] = Future()
    begun: list[asyncio.Task[None]] = []
    here = asyncio.get_running_loop()

    async def receive_here() -> Message:
        return await _call(receive, here)

    async def send_here(message: Message) -> None:
        await _call(lambda: send(message), here)

    def begin() -> None:
        task = loop.create_task(serve(dict(scope), receive_here, send_here))
        begun.append(task)
        task.add_done_callback(lambda done: _settle(done, outcome))

    try:
        loop.call_soon_threadsafe(begin)
    except RuntimeError:  # it closed at this moment
        await refuse_closed(scope, receive, send)
        return
    waiting = asyncio.wrap_future(outcome)
    waiting.add_done_callback(_retrieve)
    try:
        await _wait_settled(waiting, loop)
    except asyncio.CancelledError:
        with suppress(RuntimeError):  # it closed meanwhile, and the task is gone with it
            loop.call_soon_threadsafe(lambda: begun[0].cancel())
            await asyncio.wait({waiting}, timeout=_CANCEL_DEADLINE_S)
        raise
    except Closed:
        if begun:
            raise
        await refuse_closed(scope, receive, send)


async def _wait_settled(waiting: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
    """What came of the task in the other loop; Closed if that loop closed without a word.

    A loop that takes a callback and closes before its turn tells nobody, so it is looked at now and then.
    """
    while not waiting.done():
        if loop.is_closed():
            raise Closed("the broker was closed in the middle of a request")
        await asyncio.wait({waiting}, timeout=_LOOK_S)
    waiting.result()


async def _call(work: Callable[[], Awaitable[_T]], loop: asyncio.AbstractEventLoop) -> _T:
    """What `work` gives in another loop; it is cancelled there if we are cancelled here."""

    async def run() -> _T:
        return await work()

    running = run()
    try:
        future = asyncio.run_coroutine_threadsafe(running, loop)
    except RuntimeError as error:
        running.close()
        raise Closed("the loop of the request is closed") from error
    return await asyncio.wrap_future(future)


def _retrieve(waiting: asyncio.Future[None]) -> None:
    """A caller who is gone does not ask how it ended, and that is no error to be logged."""
    if not waiting.cancelled():
        waiting.exception()


def _settle(done: asyncio.Task[None], outcome: Future[None]) -> None:
    if done.cancelled():
        outcome.set_exception(Closed("the broker was closed in the middle of a request"))
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


async def _live(receive: Receive, send: Send) -> None:
    """Nothing starts or stops with the app around: the broker has a life of its own."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
