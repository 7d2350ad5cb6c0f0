"""How a node is, in a sentence for people: what limits it, or that all is well.

`finding`     what one check found, and the checks that `tailrace doctor` shares
`figures`     the plain numbers of one moment that everything is judged by
`diagnosis`   `diagnose(figures)`: status, limiting resource, sentence, findings; pure
`words`       numbers as people read them

Nothing here looks at a machine or a broker: who does hands over figures.
"""

from tailrace.broker.health.diagnosis import Diagnosis, Health, Limit, clock_text, damage_text, diagnose
from tailrace.broker.health.figures import Figures
from tailrace.broker.health.finding import Finding, Status, judge_descriptors, judge_free_space
from tailrace.broker.health.words import long_duration, short_number, short_rate

__all__ = [
    "Diagnosis",
    "Figures",
    "Finding",
    "Health",
    "Limit",
    "Status",
    "clock_text",
    "damage_text",
    "diagnose",
    "judge_descriptors",
    "judge_free_space",
    "long_duration",
    "short_number",
    "short_rate",
]
