"""The tiered engine: PostgreSQL has what is acknowledged, memory and Redis have what is recent.

`config`     settings and bounds; `retention_class`: which tables the chunks of a log are in
`entry`      what is sequenced: appends, creations, deletions, trims, truncations
`chunk`      consecutive whole batches of one log, as bytes: what a row holds
`round`      what one transaction does, planned purely from the entries that waited
`statement`  the SQL of a round, of its look-up after an unknown outcome, of everything else that writes
`writer`     the one connection that changes anything, its epoch, and how unknown outcomes are settled
`lock`       who may become the writer: a hint; the epoch is what is safe
`commit`     rounds, one at a time, over all partitions
`log`        one partition behind the storage port; `waiting`: who waits for its durability
`span`       which days of a log are in which tables; `recent`: the newest chunks by name
`reading`    batches by offset and by time; `cold`: chunks from Redis or PostgreSQL
`cache`      Redis, which never says what exists; `resp`, `breaker`: its connection, and when it is left alone
`state`      snapshots of what is derived from a log
`loading`    what a writer reads when it takes over
`cleanup`    retention, tables for days to come; `sweep`: what no log needs any more
`beside`     changes that are no rounds: snapshots, names; `housekeeping`: what is done by the clock
`shared`     what the parts share; `figures`: numbers for metrics
`storage`    the engine: opens, wires, closes
`migrations/` the tables

Nothing here is imported but by those who use it: a broker on another engine loads none of it.
"""
