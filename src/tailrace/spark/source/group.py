"""The progress of a stream or an archive as the offsets of a consumer group, so that its lag shows.

Neither reads these offsets: a checkpoint, or the lake, alone says where it stands. So a commit that fails,
say because the group has members of its own, is told once per cause and stops nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from tailrace.client.error import ClientError
from tailrace.model import BrokerError, TopicPartition
from tailrace.spark.link import BrokerLink

log = logging.getLogger(__name__)

_AGAIN_S = 3600.0
"""A broker expires positions that are not committed for days: one that does not move is committed again."""


class GroupProgress:
    """Commits positions for one group when they change, and every hour. Picklable, as all a reader holds."""

    __slots__ = ("_group", "_published", "_published_at", "_told")

    def __init__(self, group: str) -> None:
        self._group = group
        self._published: Mapping[TopicPartition, int] = {}
        self._published_at = 0.0
        self._told = ""

    def publish(self, link: BrokerLink, positions: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed since the last time, or all of it if that was long ago."""
        now = time.monotonic()
        is_due = now >= self._published_at + _AGAIN_S
        news = {tp: at for tp, at in positions.items() if is_due or self._published.get(tp) != at}
        if not news:
            return
        try:
            link.run(lambda client: client.commit(self._group, news))
        except (BrokerError, ClientError) as error:
            if str(error) != self._told:
                log.warning("the progress could not be committed for group %s: %s", self._group, error)
                self._told = str(error)
        else:
            self._published = dict(positions)
            self._published_at = self._published_at if not is_due else now
            self._told = ""
