"""The benchmark against peers: `python -m bench`, or `make bench`.

The same load against Tailrace and, where they can be had, Apache Kafka, Redis Streams, NATS JetStream and
RabbitMQ: all on this machine, one loaded at a time, taking turns load by load and round by round, so that
what the machine does to one it does to the others. What is missing is skipped, and the report says why.

`command`   the command line                      `run`       servers up, loads in turns, servers down
`load`      every load, as a table                `target`    every server and durability that is measured
`server/`   how each server is started            `dialect/`  how each is spoken to over raw sockets
`generator` one wire load in its own process      `client`    one side of a real client in its own process
`child`     those processes, seen from here       `goal`      what is to be reached, as a table
`report`    figures, and their JSON               `table` `page`  the same for people
`scaling/`  Tailrace alone: cost against size
`transactions/`  transactions beside Apache Kafka: `python -m bench.transactions`

Three kinds of load: *wire* sends prebuilt frames, so that the server is the limit (tailrace.bench.wire);
*client* is what a user of confluent-kafka gets; *durable* is wire with a sync to disk before every
acknowledgement. After them come curves: what more partitions, connections, bytes, consumers and groups cost.
"""
