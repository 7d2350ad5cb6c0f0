"""Where a native client stands with its broker.

closed        -> connecting                connect()
connecting    -> connected | closed        the broker answered | it did not in time
connected     -> reconnecting | closed     the connection was lost | disconnect(), or no policy to come back
reconnecting  -> connected | closed        back again | the policy ran out of attempts, or disconnect()
"""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """Of a client's connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"
