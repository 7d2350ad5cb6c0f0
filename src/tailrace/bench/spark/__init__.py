"""`tailrace bench spark`: topics through Spark, by Tailrace's data source and by Spark's own Kafka source.

Both read the same topic of the same broker in the same Spark session, in turns, round by round: what other
work does to one it does to the other, and the goals are ratios of their medians. Where the jars of Spark's
source cannot be had, ours is measured alone and the report says why.

`connector`   the jars of Spark's own source, fetched by Maven once
`filling`     the topic that is read, and how its records are made
`load`        one way of moving records through Spark each, timed
`micro_batch` what a small micro-batch costs
`cold`        the first read of a session that has just started, in a process of its own
`codec`       how fast either twin of the codec decodes and encodes
`memory`      what Spark's Python workers hold at most
`child`       what must run in a process of its own
`run`         all of it, one after the other
`report` `page`  what was found, beside the goals, and the same as one HTML page
"""
