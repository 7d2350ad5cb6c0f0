"""Cost against size: what Tailrace takes when there is more of something.

`curve`        what a curve is: sizes, figures, and how one point of it is measured
`run`          every curve, point by point, each with a server of its own
`bed`          that server: started, restarted, killed, and loaded
`push`         a fixed number of requests, as fast as they are answered
`remarks`      why a curve bends

`partitions` `connections` `message_size` `consumers` `log_size` `groups`   one curve each

Tailrace alone is measured, as `tailrace up` runs it. A point has a fresh server and a fresh directory, so
that what one size left behind is no part of the next one's figures; a point that cannot be measured leaves
its reason, and the others go on.
"""

from bench.scaling.curve import Curve, Figure
from bench.scaling.run import CURVES, plan_curves, run_curves

__all__ = ["CURVES", "Curve", "Figure", "plan_curves", "run_curves"]
