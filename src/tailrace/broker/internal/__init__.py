"""What all state shares that is kept in a log of our own: committed offsets, groups, cursors.

Such state is records in an internal compacted topic. A start reads the topic, a change is appended to it, and
whoever asked for the change is told when its record is durable.

`log`        the port: an internal topic, partition by partition
`topic`      `InternalTopic`: the same, over the topics of the broker (imported from there: it needs them all)
`writer`     `StateWriter`: changes of one partition that come together become one batch
`placement`  which partition a name lives in
`fields`     the field types that keys and values are made of
`alarm`      one timer for everything that has a time
"""

from tailrace.broker.internal.alarm import Alarm
from tailrace.broker.internal.fields import FieldReader, FieldWriter, MalformedFields
from tailrace.broker.internal.log import InternalLog
from tailrace.broker.internal.placement import java_hash, partition_for
from tailrace.broker.internal.writer import Done, ErrorMap, Source, StateWriter

__all__ = [
    "Alarm",
    "Done",
    "ErrorMap",
    "FieldReader",
    "FieldWriter",
    "InternalLog",
    "MalformedFields",
    "Source",
    "StateWriter",
    "java_hash",
    "partition_for",
]
