"""REST under /api/v1: one module per noun, each with its Structs, its handlers and its rows of the table.

`health`   is the node alive, may clients be sent to it
`topic`    topics, their partitions and settings
"""

from tailrace.http.rest import health, topic

OPERATIONS = (*health.OPERATIONS, *topic.OPERATIONS)

__all__ = ["OPERATIONS"]
