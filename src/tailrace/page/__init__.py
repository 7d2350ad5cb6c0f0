"""Pages to keep or to pass on: HTML with its style and its plots in it, no script and nothing from elsewhere.

    document.py  the frame, the style, tables, facts
    plot.py      bars and lines
    columns.py   columns over time or size, and shares as small bars in a table

Benchmarks and reports write theirs with it. It knows nothing of what it shows.
"""

from tailrace.page.columns import Column, columns, share_bar, tick_step
from tailrace.page.document import document, facts, table
from tailrace.page.plot import Bar, Dot, bars, line

__all__ = [
    "Bar",
    "Column",
    "Dot",
    "bars",
    "columns",
    "document",
    "facts",
    "line",
    "share_bar",
    "table",
    "tick_step",
]
