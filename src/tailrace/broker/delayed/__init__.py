"""Messages with a time: kept until they are due, then published.

`delayed`  `Delayed`: the part of the broker; takes messages, and looks at the clock
`due`      what the properties `deliver_at` and `delay_ms` mean
`index`    what is due when, in memory
`log`      the internal topic `__tailrace_delayed`
`stored`   its records, byte by byte
`loading`  what a start finds there
`reading`  what is due, out of it
`moving`   from there into the topics, each message exactly once
`held`     messages whose topic cannot take them now
"""

from tailrace.broker.delayed.delayed import Delayed, Status
from tailrace.broker.delayed.due import DELAY_MS, DELIVER_AT
from tailrace.broker.delayed.log import DELAYED_TOPIC
from tailrace.broker.delayed.moving import DELAYED_ID

__all__ = ["DELAYED_ID", "DELAYED_TOPIC", "DELAY_MS", "DELIVER_AT", "Delayed", "Status"]
