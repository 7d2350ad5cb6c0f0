"""Native messaging beside its peers: `python -m bench.native`, or `make bench-native`.

The same loads, by each broker's own asyncio client, against Tailrace, RabbitMQ, NATS JetStream and Redis
Streams: all on this machine, one loaded at a time, taking turns round by round.

`command`    the command line                     `run`        servers up, loads in turns, servers down
`contender`  everybody who is measured            `server`     Tailrace with its native listener
`client`     one load in a process of its own     `measure`    that process, seen from here
`rabbitmq` `nats` `redis`  the peers as tailrace.bench.native.messaging wants them
`goal`       what is to be reached                `table`      the report for people; its page is bench.page

The loads are those of `tailrace bench native`: tailrace.bench.native.load. Every client process is kept on
one core, the same for all, and every one runs uvloop. Tailrace as it comes, RabbitMQ's quorum queues and
Redis with `appendfsync always` sync before they confirm; NATS does not, and neither does Tailrace in memory.
RabbitMQ and NATS do not answer an acknowledgement of a delivery; Tailrace and Redis do, once it is on the
disk. At the end each is asked whether it knows of them all.
"""
