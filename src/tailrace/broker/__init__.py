"""The broker: topics, partitions, producers, groups. Free of wire types and sockets; listeners stand on it.

`gate`         what a listener is given: finds the object that a session asks for, or refuses it
`broker`       the parts of a node's broker; start and end
`cluster_view` the cluster as clients are told of it
`topics`       the registry: how topics come, change and go; `topic` is one of them
`placement`    where the partitions of a topic live
`partition`    one partition: append, acknowledge; decides what is visible, and reads below the high watermark
`waiters`      who wants to be called when a partition moves
`sequence`     the one way from records to batches, and into the log of a partition, without an await
`appending`    records of REST and of this process; `publishing` is for messages, with ids and times
`visible_records`  the one way to read a partition for its records; `feed` gives them one after the other
`reading`      records out of partitions, a page at a time; `unreadable` is the error for what cannot be
               read; `newest` finds the offset where the last N records begin
`groups/`      consumer groups: a pure state machine, its coordinator, the records of committed offsets
`subscriptions/`   messages delivered one by one; `delayed/` keeps those that are not due
`health/`      how a node is, in a sentence: what limits it; pure
`counters`     what was done since the start, as plain integers
`internal/`    what all state shares that is kept in a log of our own
`cuts`         every file of one moment, held for a backup
`configs/`     settings of topics and nodes under Kafka's names; `config` is what the broker itself goes by
`ports`        what is needed of whoever keeps the metadata

Rules: a batch is sequenced without an await (`Partition.append`) and answered when the partition says so
(`Partition.acknowledged`). Nothing assumes that this node leads every partition it knows.
"""

from tailrace.broker.broker import Broker
from tailrace.broker.cluster_view import ClusterView, Node
from tailrace.broker.config import BrokerConfig
from tailrace.broker.counters import Counters, TopicCounters
from tailrace.broker.partition import UP_TO_HIGH_WATERMARK, Appended, Partition
from tailrace.broker.ports import MetadataImage, MetadataStore, PartitionRecord, TopicRecord
from tailrace.broker.topic import DEFAULT, NewTopic, Topic, check_name, unknown_topic
from tailrace.broker.topics import Topics
from tailrace.broker.waiters import Waiters

__all__ = [
    "DEFAULT",
    "UP_TO_HIGH_WATERMARK",
    "Appended",
    "Broker",
    "BrokerConfig",
    "ClusterView",
    "Counters",
    "MetadataImage",
    "MetadataStore",
    "NewTopic",
    "Node",
    "Partition",
    "PartitionRecord",
    "Topic",
    "TopicCounters",
    "TopicRecord",
    "Topics",
    "Waiters",
    "check_name",
    "unknown_topic",
]
