"""The loads behind `tailrace bench`.

`log`         every load of `tailrace bench log`, one after the other, into one report
`report`      what it measured, beside the goals
`page`        the same as one HTML page
`wire`        loads over raw sockets, those of `tailrace bench` among them
`broker_report` `broker_page`  what those measured, and the same as one HTML page
`compare`     our log and the bare system calls in turns, so that both meet the same disk at the same time
`batch`       batches of an exact size
`appending` `reading` `committing` `recovering` `coding`  one load each
`process` `child`  what must run in a process of its own: a writer that dies, either twin of the codec
`machine`     where it was measured

Figures are ratios of medians wherever they can be: a disk, its neighbours and the weather change the absolute
ones from minute to minute, and two loads that take turns share that.
"""

from tailrace.bench.log import FULL, QUICK, STEPS, Sizes, run_log_bench
from tailrace.bench.page import write_page
from tailrace.bench.report import GOALS, Goal, LogReport, Verdict, judge, write_figure

__all__ = [
    "FULL",
    "GOALS",
    "QUICK",
    "STEPS",
    "Goal",
    "LogReport",
    "Sizes",
    "Verdict",
    "judge",
    "run_log_bench",
    "write_figure",
    "write_page",
]
