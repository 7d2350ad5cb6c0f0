"""The Kafka listener: Kafka clients on a TCP port, served from the broker.

`listener`    one port, by tailrace.net            `service`   what its connections share
`connection`  one client: requests in order, replies in order, and what may hold them up
`replies`     replies as fast as they are read     `held`      one that the next request waits for
`dispatch`    from a frame to a handler            `handlers/` one module per API
`fetching`    one fetch: read, wait, answer        `cache`     encoded replies that stay true
`shape`       produce requests that are alike      `errors`    our exceptions as Kafka's codes
`call`        what a handler is given              `config`    bounds and defaults
`fetch_session`  fetch sessions (KIP-227)

The path of a batch: the receive buffer -> one copy, the log's own -> `Partition.append`, without an await ->
the reply waits for durability, while later requests are taken.
"""

from tailrace.kafka.call import Call
from tailrace.kafka.config import KafkaConfig
from tailrace.kafka.listener import KafkaListener

__all__ = ["Call", "KafkaConfig", "KafkaListener"]
