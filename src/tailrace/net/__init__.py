"""What every listener needs of sockets, whatever is spoken through it.

`acceptor`    binds a port, counts connections, refuses and ends them
`service`     what the connections of one listener share, and the listener
`budget`      the node's bound on request bytes, and each listener's share of it
`framed`      a connection, as far as frames go: what holds it, and whose turn it is
`frames`      size-prefixed frames out of a byte stream, without I/O
`peer`        the two ends of a connection
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

__all__ = [
    "Acceptor",
    "AcceptorConfig",
    "Claim",
    "ConnectionFacts",
    "FrameSplitter",
    "Holding",
    "ListenerCounters",
    "NodeBudget",
    "RequestBudget",
    "RequestListener",
    "RequestService",
    "Tally",
    "Trace",
    "facts_of",
    "find_occupant",
]
