"""Transactions beside Apache Kafka: `python -m bench.transactions`, or `make bench-transactions`.

One small batch in one partition for each transaction, as fast as the producers can, and how late a reader of
committed records is. Tailrace syncs every transaction to disk before it answers; Kafka runs with its
defaults, which leave that to the operating system.

`command`  the command line                    `client`   a load in a process of its own, on one core
`wire`     producers and readers by raw frames, with an epoch for every transaction (KIP-890 part 2)
`load`     every load, as a table              `table`    goals and figures for people
"""
