"""Native messaging while everything dies: the broker, its publishers and its workers, by kill -9.

`broker`     `tailrace up` as a process that is killed and started again at the same address
`life`       a process that lives again and again, until a life ends by itself
`publisher`  one that publishes until it is told to stop: `python -m tailrace.testing.chaos.publisher`
`worker`     one that works for a subscription, badly: `python -m tailrace.testing.chaos.worker`
`crew`       those processes as their parent sees them
`notes`      what each of them wrote down before it went on
`account`    what the notes and what is left in the topics must therefore agree on
"""

from tailrace.testing.chaos.account import Account, Letter, Stored
from tailrace.testing.chaos.broker import BrokerProcess
from tailrace.testing.chaos.crew import Crew

__all__ = ["Account", "BrokerProcess", "Crew", "Letter", "Stored"]
