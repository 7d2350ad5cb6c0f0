"""Streams that do not end by themselves: tails of topics, and native sessions by WebSocket.

`entry`      a record as all tails show it, and the id by which a client goes on after it
`ring`       the newest records of one topic, decoded once for all of its tails
`history`    what a tail shows out of the log before it is live
`tail`       one client's way through both
`tails`      all of them, and their share of the loop's time
`start`      where a request wants to begin
`sse`        a tail as server-sent events          `websocket`  a tail, or a native session, as WebSocket
`port`       what the native listener is to this package
"""

from tailrace.http.live.sse import OPERATIONS
from tailrace.http.live.tails import Tails
from tailrace.http.live.websocket import routes

__all__ = ["OPERATIONS", "Tails", "routes"]
