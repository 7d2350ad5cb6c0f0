"""A stream's progress as the offsets of a consumer group, so that its lag shows wherever groups are shown.

The query never reads these offsets: its checkpoint alone says where it stands. So a commit that fails, say
because the group has members of its own, is told once per cause and stops nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tailrace.client.error import ClientError
from tailrace.model import BrokerError, TopicPartition
from tailrace.spark.link import BrokerLink

log = logging.getLogger(__name__)


class GroupProgress:
    """Commits positions for one group, each once. Picklable, as everything a reader holds."""

    __slots__ = ("_group", "_published", "_told")

    def __init__(self, group: str) -> None:
        self._group = group
        self._published: Mapping[TopicPartition, int] = {}
        self._told = ""

    def publish(self, link: BrokerLink, positions: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed since the last time."""
        news = {tp: offset for tp, offset in positions.items() if self._published.get(tp) != offset}
        if not news:
            return
        try:
            link.run(lambda client: client.commit(self._group, news))
        except (BrokerError, ClientError) as error:
            if str(error) != self._told:
                log.warning("publishGroup: the progress could not be committed: %s", error)
                self._told = str(error)
        else:
            self._published = dict(positions)
            self._told = ""
