"""The laboratory's studies: `STUDIES`, each implemented in a module with its points, measurement and report.

The commands `placebench lab study …` and the kinds of their runs are derived from `STUDIES`. A study's module defines
`run` and `KIND`; it is imported when its command runs, or when one of its runs is read. Its options are in `commands`.
"""

from collections.abc import Mapping
from typing import Final

STUDIES: Final[Mapping[str, str]] = {
    "network": "what latency, bandwidth and proxies cost each variant",
    "workers": "threads or processes: throughput, CPU and memory of every mix",
    "matrix": "what each part of the stack costs, against a control",
    "breakdown": "what the latency of a request consists of",
    "operators": "what each setting of the real Placement is worth",
    "herd": "claims that schedulers lose to each other on the real Placement",
    "saturation": "how much load each variant takes, and how it breaks",
    "scaleout": "throughput and CPU by the number of hosts and replicas",
    "published": "the published figures of Placement, measured again",
}
"""The help line of each study's command, by the name of the study, in the order of the help text."""
KINDS: Final[Mapping[str, str]] = {name: f"{__name__}.{name}:KIND" for name in STUDIES}
"""The kind of run of each study as "module:attribute", for the registry `placebench.runs`."""
