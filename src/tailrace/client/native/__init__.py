"""The parts of the native clients `AsyncClient` and `BrokerClient`.

    status.py           connecting, connected, reconnecting, closed
    reconnect.py        the policy: how long to wait before the next attempt
    error.py            ERROR frames as exceptions
    connection.py       one connection: frames, replies by sequence, heartbeats
    link.py             a connection that comes back; requests are repeated over it
    catalog.py          partitions of topics, and which one a message goes to
    outgoing.py         a message as given -> properties and body
    flight.py, lane.py  messages that leave together; the order and the sequences of one partition
    publisher.py        all lanes, their bound, and what happens when something goes wrong
    published.py        what a publisher learns
    message.py          what a subscriber gets
    settlement.py       acknowledgements, refusals and leases, many in one frame
    inbox.py            what is delivered and waits for a worker
    subscription.py     one membership: workers, iteration, leases
    subscriptions.py    all of them; joining, joining again, leaving
    blocking.py         messages and subscriptions for threads
    request.py          settings and starts as properties
    parts.py            all of it put together, and the settings it shares

Everything but blocking.py lives in one event loop and is touched from nowhere else.
"""
