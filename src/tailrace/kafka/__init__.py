"""The Kafka listener: Kafka clients on a TCP port, served through the broker's gate.

`listener`    one port, by tailrace.net            `service`   what its connections share
`connection`  one client: requests in order, replies in order, and what may hold them up
`replies`     replies as fast as they are read     `held`      one that the next request waits for
`dispatch`    from a frame to a handler            `handlers/` one module per API
`fetching`    one fetch: read, wait, answer        `cache`     encoded replies that stay true
`shape`       produce requests that are alike      `errors`    our exceptions as Kafka's codes
`call`        what a handler is given              `config`    bounds and defaults
`fetch_session`  fetch sessions (KIP-227)

Every connection is one session and has one access to the broker's objects (`tailrace.broker.gate`); handlers
get it as `call.access` and ask it with the operation that Kafka's authorizer checks for their API.

The path of a batch: the receive buffer -> one copy, the log's own -> `Partition.append`, without an await ->
the reply waits for durability, while later requests are taken. The functions that it passes:

    Connection.buffer_updated, Connection._consume      connection.py
    dispatch                                            dispatch.py
    take, _answer (asks `Access.writable`)              handlers/produce.py
    Partition.append                                    broker/partition.py
    PartitionLog.append                                 storage/
"""

from tailrace.kafka.call import Call
from tailrace.kafka.config import KafkaConfig
from tailrace.kafka.listener import KafkaListener

__all__ = ["Call", "KafkaConfig", "KafkaListener"]
