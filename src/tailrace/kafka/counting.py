"""Requests counted by API and error, once their answer is known.

Produce and Fetch count themselves, where they know their errors anyway. Of all others the response is looked
at: the first `error_code` in it, or in the items of its lists, is its error. Where a type has one is found
out once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, get_args, get_type_hints

from tailrace.kafka.errors import error_name
from tailrace.wire.kafka import APIS, Message

if TYPE_CHECKING:
    from tailrace.kafka.service import KafkaService

_ERRORS = ("error_code", "partition_error_code")  # the second in AddPartitionsToTxn alone
Path = tuple[str, ...]


def count(service: KafkaService, key: int, response: Message | None, *, started: float) -> None:
    """A request of this API is answered; None: with bytes that were kept, which tell of no error."""
    counters, api = service.counters, APIS[key].name
    tally = counters.tally(api)
    seconds = service.clock.monotonic() - started
    tally.note(seconds)
    code = 0 if response is None else find_error(response)
    if code:
        tally.fail(error_name(code))
    if counters.trace is not None:
        counters.trace(api, seconds, error=error_name(code) if code else "")


def find_error(response: Message) -> int:
    """The first error in a response; 0 if there is none."""
    for path in _paths(type(response)):
        if code := _first(response, path):
            return code
    return 0


def _first(message: object, path: Path) -> int:
    if len(path) == 1:
        return int(getattr(message, path[0]))
    for each in getattr(message, path[0]) or ():
        if code := _first(each, path[1:]):
            return code
    return 0


@cache
def _paths(kind: type) -> tuple[Path, ...]:
    """Where messages of a type have errors: in themselves, or in the items of their lists."""
    hints = get_type_hints(kind)
    found: list[Path] = [(name,) for name in _ERRORS if name in hints]
    for name, hint in hints.items():
        for item in _item_types(hint):
            found += [(name, *path) for path in _paths(item)]
    return tuple(found)


def _item_types(hint: object) -> list[type[Message]]:
    """The messages that a field holds in a list, however it is annotated."""
    if isinstance(hint, type) and not get_args(hint):
        return [hint] if issubclass(hint, Message) else []
    return [each for arg in get_args(hint) for each in _item_types(arg)]
