"""How often the garbage collector makes a pass in `shapes` and `snapshot`, which freeze what was loaded, as `tuned`."""

from placebench.reference.steps.collector import collector_as_shipped, collector_seldom
from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="seldom",
    step="passes",
    of=("shapes", "snapshot"),
    plain=Way("as_shipped", collector_as_shipped),
    better=Way("seldom", collector_seldom),
    why="A collection traverses the young lists and dicts, thousands of entries, and finds no cycle.",
    source="Our measurement: a tenth of the worker's CPU on equal trees and a fifth on trees that differ, in 2 and 8 "
    "collections per request. For `naive` and `tuned` it is `collector:seldom`.",
    metric="cpu_s",
    on="nested-perfload with disks that differ",
    place="deployment",
)
