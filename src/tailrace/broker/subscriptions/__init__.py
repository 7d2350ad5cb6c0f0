"""Subscriptions: a topic's messages, delivered to members one by one, each acknowledged on its own.

Pure, without clock or I/O:
`definition`            what somebody asked for: mode, guarantee, limits
`cursor`                which offsets are done with: a prefix, and ranges beyond it
`machine`               what becomes of each message of one partition; `timers` when its locks end
`dispatch`              who gets which message

Durable, in the compacted topic `__tailrace_cursors`:
`stored`, `codec`       values, and their bytes
`journal`, `loading`    small records for changes, now and then one with everything; how they are read back
`acknowledging`         what transactions acknowledge, from its record to the end of the transaction
`cursor_writer`         what changed together is one write; a waiter is told when its write is durable

At work:
`retained`              what was delivered and is not settled, kept for delivering it again
`message_memory`        what all subscriptions of a node keep of their messages, and its bound
`subscribed_partition`  machine, feed and cursor of one partition
`member`, `delivery`    who takes messages, and what passes between him and the subscription
`pulling`               messages that a client asks for, by any listener
`intake`                which partition the next new message comes from
`at_most_once`          messages that leave when the cursor past them is durable
`subscription`          a turn: times, new messages, members
`start`, `move`         where the cursor goes when somebody moves it, and what that means for messages
`redelivery`            what was not settled: delivered again, or written off
`burial`                writes dead letters, many in one transaction; what is written may be passed
`dead_letter`           what nobody could deal with, with the reason
`latency`               how long messages take, of some of them
`description`           what a subscription says of itself
`subscriptions`         all of them: how they come, are found again, and go
"""

from tailrace.broker.subscriptions.definition import Guarantee, Mode, Order, Start, SubscriptionConfig
from tailrace.broker.subscriptions.delivery import Delivery, Notice, Recipient, Source
from tailrace.broker.subscriptions.description import describe, summarize
from tailrace.broker.subscriptions.member import Member
from tailrace.broker.subscriptions.move import Move
from tailrace.broker.subscriptions.stored import CURSORS_TOPIC
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.broker.subscriptions.subscriptions import Subscriptions

__all__ = [
    "CURSORS_TOPIC",
    "Delivery",
    "Guarantee",
    "Member",
    "Mode",
    "Move",
    "Notice",
    "Order",
    "Recipient",
    "Source",
    "Start",
    "Subscription",
    "SubscriptionConfig",
    "Subscriptions",
    "describe",
    "summarize",
]
