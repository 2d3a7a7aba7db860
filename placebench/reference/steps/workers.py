"""How many requests are answered at once: by processes, by threads of one process, or one after the other."""

from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="workers",
    step="workers",
    plain=Way("as_told", None),
    others=(Way("2x1", (2, 1)), Way("1x2", (1, 2)), Way("2x2", (2, 2)), Way("1x4", (1, 4))),
    why="Threads share memory and the interpreter lock, so they help while the database works; processes share "
    "neither.",
    source="uWSGI's --processes and --threads. A comparison sends one request at a time, so it shows the memory; "
    "`placebench lab study workers` measures throughput and waiting.",
    metric="pss_bytes",
    place="deployment",
)
