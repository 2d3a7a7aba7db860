"""The laboratory's studies, one module each with its options, points, measurement and report: `STUDIES`.

The commands `placebench lab study …` and the kinds of their runs are derived from that list. A study's module defines
`COMMANDS` and `KIND`; it is imported when its command is called, or when one of its runs is read.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Study(NamedTuple):
    """What is known of a study before its module is imported."""

    name: str
    help: str
    """The line of the command's help."""
    module: str


STUDIES: Final = (
    Study("network", "what latency, bandwidth and proxies cost each variant", "placebench.lab.studies.network"),
    Study("workers", "threads or processes: throughput, CPU and memory of every mix", "placebench.lab.studies.workers"),
    Study("matrix", "what each part of the stack costs, against a control", "placebench.lab.studies.matrix"),
    Study("breakdown", "what the latency of a request consists of", "placebench.lab.studies.breakdown"),
    Study("operators", "what each setting of the real Placement is worth", "placebench.lab.studies.operators"),
    Study("herd", "claims that schedulers lose to each other on the real Placement", "placebench.lab.studies.herd"),
    Study("saturation", "how much load each variant takes, and how it breaks", "placebench.lab.studies.saturation"),
    Study("scaleout", "throughput and CPU by the number of hosts and replicas", "placebench.lab.studies.scaleout"),
    Study("published", "the published figures of Placement, measured again", "placebench.lab.studies.published"),
)
"""In the order of the help."""
KINDS: Final[Mapping[str, str]] = {study.name: f"{study.module}:KIND" for study in STUDIES}
"""Where the kind of run of each study is, for the registry `placebench.runs`."""
