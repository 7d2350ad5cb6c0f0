"""REST under /api/v1: one module per noun, each with its Structs, its handlers and its rows of the table.

`health`   is the node alive, may clients be sent to it
`topic`    topics, their partitions and settings
`record`   records: `produce` takes them, `reading` finds them, `arrow` writes them as columns
`transaction`    several topics at once; what is open, and how to end it
`group`    consumer groups: members, offsets, lag; `group_reset` moves them
`cut`      every file of one moment, held for a backup
`cluster`  the nodes, and how this one is, in a sentence
`pipeline` runs of pipelines, wherever they are
`whoami`   who the caller is
`audit`    the audit log
`setting`  what the node goes by
`subscription`   subscriptions: come, go, are moved; dead letters
`user`           who may log in; `token`: what may act for a user; `acl`: who may do what
`metric`         figures: for Prometheus, and with their history as JSON
`message`        messages of a subscription: pulled and settled; `pulling` holds them, `ack_id` names them
"""

from tailrace.http.rest import (
    acl,
    audit,
    cluster,
    cut,
    group,
    group_reset,
    health,
    message,
    metric,
    pipeline,
    quota,
    record,
    setting,
    subscription,
    token,
    topic,
    transaction,
    user,
    whoami,
)

OPERATIONS = (
    *health.OPERATIONS,
    *topic.OPERATIONS,
    *record.OPERATIONS,
    *transaction.OPERATIONS,
    *group.OPERATIONS,
    *group_reset.OPERATIONS,
    *cluster.OPERATIONS,
    *cut.OPERATIONS,
    *pipeline.OPERATIONS,
    *setting.OPERATIONS,
    *subscription.OPERATIONS,
    *message.OPERATIONS,
    *metric.OPERATIONS,
    *user.OPERATIONS,
    *acl.OPERATIONS,
    *token.OPERATIONS,
    *quota.OPERATIONS,
    *audit.OPERATIONS,
    *whoami.OPERATIONS,
)

__all__ = ["OPERATIONS"]
