"""The native listener: clients of our own protocol on a TCP port or by WebSocket, served from the broker.

`listener`    one port, by tailrace.net                     `service`    what its connections share
`connection`  one socket: frames in, frames out, and what may hold them up
`protocol`    one client, without a socket: requests in order, replies when they are known
`dispatch`    from a frame's type to its handler            `handlers/`  what each request does
`publishing`  messages of one read, stored as one batch     `membership` subscriptions of one client
`delivery`    messages pushed to a client                   `pulling`    messages that it asked for
`transacting` open transactions of one client: what is published and acknowledged in one step
`waits`       replies that wait for durability              `property`   numbers and texts of a request
`stream`      what is different on a stream of bytes: TCP, a Unix socket, TLS
`websocket`   what is different on a WebSocket that the HTTP listener accepted
`websocket_transport`  that WebSocket as a transport: messages in and out, texts translated
`errors`      our exceptions as ERROR frames                `config`     bounds and defaults
`counting`    requests by type and error

The path of a message: the receive buffer -> one batch with the others of the same read ->
`Publisher.publish`, without an await -> the reply waits for durability, while later requests are taken.
"""

from tailrace.native.config import NativeConfig
from tailrace.native.listener import NativeListener

__all__ = ["NativeConfig", "NativeListener"]
