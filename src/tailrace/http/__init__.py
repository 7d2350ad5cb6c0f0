"""The HTTP listener: REST, live streams, metrics and the console, on one port.

`operation`    one thing that REST offers; the table of them is the only description there is
`rest/`        the operations, by noun
`live/`        streams that do not end: tails, WebSocket
`search`       which records a read or a tail is looking for
`body`         request bodies, bounded; `intake` does it for what a WebSocket sends
`error`        exceptions to answers: the one border
`app`          the ASGI application, mountable anywhere
`openapi`      the table as /openapi.json
`guard`        keeps pages of other sites away from a broker on this machine
`service`      what requests share; `config` has every bound
`session`      who asks: the one place where a request becomes a session
`connection`   uvicorn's protocols with the bounds they lack; `listener` binds them to a port

Rules: a length from a client is checked before it is used, a stream that is not read costs a bounded amount
of memory, and a handler only translates. Nothing of this package is imported before the listener opens.
"""

from tailrace.http.app import HttpApp
from tailrace.http.config import HttpConfig
from tailrace.http.listener import HttpListener
from tailrace.http.service import HttpService, NodeFacts
from tailrace.http.table import create_app

__all__ = ["HttpApp", "HttpConfig", "HttpListener", "HttpService", "NodeFacts", "create_app"]
