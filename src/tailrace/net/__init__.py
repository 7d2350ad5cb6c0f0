"""What every listener needs of sockets, whatever is spoken through it.

`transport`   the port to sockets: what a connection needs of one, and where a listener listens
`unix_socket` Unix sockets as files: binding and removing them
`acceptor`    binds addresses, counts connections, refuses and ends them
`service`     what the connections of one listener share, and the listener
`budget`      the node's bound on request bytes, and each listener's share of it
`framed`      a connection, as far as frames go: what holds it, and whose turn it is
`unread`      the node's bound on what clients do not read
`frames`      size-prefixed frames out of a byte stream, without I/O
`peer`        the two ends of a connection
`stranger`    clients of another protocol, and what they are told
`occupant`    who listens on a port that we wanted
`tally`       what became of the requests of one API
"""

from tailrace.net.acceptor import Acceptor, AcceptorConfig, ListenerCounters
from tailrace.net.budget import Claim, Holding, NodeBudget, RequestBudget
from tailrace.net.frames import FrameSplitter
from tailrace.net.occupant import find_occupant
from tailrace.net.peer import ConnectionFacts, facts_of
from tailrace.net.service import RequestListener, RequestService
from tailrace.net.tally import Tally, Trace
from tailrace.net.transport import Listening, Transport, half_close, has_unread, listen
from tailrace.net.unread import ListenerUnread, UnreadBytes

__all__ = [
    "Acceptor",
    "AcceptorConfig",
    "Claim",
    "ConnectionFacts",
    "FrameSplitter",
    "Holding",
    "ListenerCounters",
    "ListenerUnread",
    "Listening",
    "NodeBudget",
    "RequestBudget",
    "RequestListener",
    "RequestService",
    "Tally",
    "Trace",
    "Transport",
    "UnreadBytes",
    "facts_of",
    "find_occupant",
    "half_close",
    "has_unread",
    "listen",
]
