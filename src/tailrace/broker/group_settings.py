"""The settings that clients gave consumer groups, kept in the metadata store.

A group need not exist to have settings, and keeps them when it is deleted, as in Kafka. A change is done to
its end, also where its caller has stopped waiting. A StorageError in the middle of a change ends the broker:
it is not known whether the change was stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from tailrace.broker.configs import check_group_configs
from tailrace.broker.ports import MetadataStore
from tailrace.model import BrokerError, ErrorCode, StorageError

logger = logging.getLogger(__name__)

_OWNER = "group/"
_GROUPS_MAX = 10_000  # a client chooses the names, and all of them are in memory
_NAME_LENGTH_MAX = 1_000


class GroupSettings(Mapping[str, Mapping[str, str]]):
    """Settings by group; a group without settings of its own is absent."""

    def __init__(self, metadata: MetadataStore, *, on_failure: Callable[[BaseException], None]) -> None:
        self._metadata = metadata
        self._on_failure = on_failure
        self._by_group: dict[str, Mapping[str, str]] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()  # under way, or waiting for their turn

    def __repr__(self) -> str:
        return f"<GroupSettings of {len(self)} groups>"

    def __getitem__(self, group_id: str) -> Mapping[str, str]:
        return self._by_group[group_id]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._by_group))

    def __len__(self) -> int:
        return len(self._by_group)

    def load(self, kept: Mapping[str, Mapping[str, str]]) -> None:
        """Take over what was kept; a setting that is not accepted any more is left out."""
        for owner, settings in kept.items():
            if owner.startswith(_OWNER):
                accepted = {name: text for name, text in settings.items() if _is_accepted(owner, name, text)}
                if accepted:
                    self._by_group[owner.removeprefix(_OWNER)] = accepted

    async def alter(
        self,
        group_id: str,
        plan: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a group the settings that `plan` makes of its present ones; no other change comes between."""
        work = self._alter(group_id, plan, validate_only=validate_only)
        task = asyncio.get_running_loop().create_task(work, name="group-settings")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def _alter(
        self, group_id: str, plan: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        async with self._changing:
            settings = plan(self._by_group.get(group_id, {}))
            check_group_configs(settings)
            self._check_room(group_id)
            if validate_only:
                return
            try:
                await self._metadata.set_settings(_OWNER + group_id, settings)
            except StorageError as error:
                self._on_failure(error)
                raise
            if settings:
                self._by_group[group_id] = dict(settings)
            else:
                self._by_group.pop(group_id, None)

    def _check_room(self, group_id: str) -> None:
        if len(group_id) > _NAME_LENGTH_MAX:
            raise BrokerError(
                f"the name of a group with settings has {_NAME_LENGTH_MAX} characters at most",
                code=ErrorCode.INVALID_REQUEST,
            )
        if group_id not in self._by_group and len(self._by_group) >= _GROUPS_MAX:
            raise BrokerError(
                f"{len(self._by_group)} groups have settings, and no more may. Delete settings of groups "
                "that are not used",
                code=ErrorCode.POLICY_VIOLATION,
            )


def check_named(group_id: str) -> None:
    """INVALID_REQUEST for an empty name: Kafka has no settings for all groups at once."""
    if not group_id:
        raise BrokerError("a group with settings has a name", code=ErrorCode.INVALID_REQUEST)


def _is_accepted(owner: str, name: str, text: str) -> bool:
    try:
        check_group_configs({name: text})
    except BrokerError as error:
        logger.warning("kept setting is left out: %s: %s = %s: %s", owner, name, text, error)
        return False
    return True
