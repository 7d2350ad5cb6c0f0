"""How many files this process may have open, and who gets them.

A partition of the segment engine keeps one file open, a connection one socket. Each side gets half of the
limit, so that neither a flood of connections nor a topic with thousands of partitions takes what the other
needs: running out in the middle of a write would end the data directory.
"""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

_SPARE = 64  # the journal, metadata, sealed segments being read
_UNLIMITED = 1 << 20


def raise_limit() -> None:
    """Take as many as the system gives; for a process that is ours alone."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:  # macOS has a limit of its own below an unlimited one
        logger.info("limit on open files stays: %s", error)


def partitions_max() -> int:
    """How many partitions may have a file open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _UNLIMITED if soft == resource.RLIM_INFINITY else soft
    return max(1, limit // 2 - _SPARE)
