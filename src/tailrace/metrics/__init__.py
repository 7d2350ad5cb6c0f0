"""Figures of a node: what it did, how long that took, how far behind its readers are.

`observed`        what is looked at: a broker, its listeners, its directory
`free_space`      how much that directory may still take
`lag`             how far groups and subscriptions are behind
`percentile`      the value that most do not exceed
`process`         processor time and memory of this process
`loop_lag`        how late the event loop comes to what is due
`history`         samples of the last while, bounded; `topic_rates` those of every topic
`reading`         counters at one moment, and rates between two
`sampler`         takes a sample every few seconds, for whoever looks later
`health`          the present figures that `broker.health` judges
`node_metrics`    all of it, as a listener shows it
`choice`          which of too many are shown, and that they stay shown
`runs`            the runs of pipelines, as they tell of themselves
`snapshot`        what one scrape shows, taken in pieces
`family`          samples as prometheus_client has them
`collector`       the families of a node, `kafka_names` those that kafka_exporter has
`exposition`      families as text, a piece at a time

Hot code only adds to integers that live with what they count. Everything that takes thought happens here,
only while somebody looks, and in pieces: a node with ten thousand partitions is not stopped by a look at it.
This package imports nothing of itself here: who needs percentiles does not load prometheus_client.
"""
