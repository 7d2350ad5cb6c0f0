"""Transactions: a producer's writes to several partitions, and its positions, take effect together or never.

`api.py`          the values that listeners and the coordinator exchange: read this one first
`coordinator.py`  `TransactionCoordinator`: performs what the machine decides, in one event loop
`machine.py`      one transactional id, as pure decisions; `state.py` what is kept of it, `refusal.py` why
                  something is refused
`verification.py` whether a batch may go into a partition as part of a transaction
`codec.py`        records of `__transaction_state` in Kafka's formats; `topic.py` that topic's name
`directory.py`    which transactional ids live on this node; `home.py` a partition of that topic with its ids,
                  `loading.py` reads it
`hanging.py`      finds transactions that no coordinator will end
`acknowledging.py`  commits that acknowledge messages of subscriptions
`pool.py`         transactional ids of the node, for callers without one
`atomic.py`       appends to several partitions in one turn, all or nothing
`handle.py`       one transactional id, as the gate hands it out
`limits.py`       settings and bounds; `ports.py` what is needed of the rest of the broker
"""

from tailrace.broker.transactions.api import Identity, TransactionDescription, TransactionState
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.limits import TransactionConfig
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.topic import TRANSACTIONS_CONFIGS, TRANSACTIONS_TOPIC

__all__ = [
    "TRANSACTIONS_CONFIGS",
    "TRANSACTIONS_TOPIC",
    "Identity",
    "Situation",
    "TransactionConfig",
    "TransactionCoordinator",
    "TransactionDescription",
    "TransactionRefused",
    "TransactionState",
]
