"""How many requests are answered at once: by processes, by threads of one process, or one after the other."""

from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="workers",
    step="workers",
    plain=Way("as_told", None),
    others=(Way("2x1", (2, 1)), Way("1x2", (1, 2)), Way("2x2", (2, 2)), Way("1x4", (1, 4))),
    why="Threads share memory and the interpreter's lock, so that they help while the database works; processes share "
    "neither.",
    source="uWSGI's --processes and --threads. A comparison asks one request at a time, so that it sees the memory; "
    "throughput and waiting are what `placebench workers` measures.",
    metric="pss_bytes",
    place="deployment",
)
