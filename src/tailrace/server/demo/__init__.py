"""Traffic to look at: `tailrace up --demo`.

`event`    what is written: orders, their payments, and clicks, as small JSON texts with keys
`traffic`  who writes and who reads: real clients that come through the Kafka listener like anybody else
"""

from tailrace.server.demo.traffic import GROUPS, Demo

__all__ = ["GROUPS", "Demo"]
