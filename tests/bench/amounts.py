"""How much each section of the bench measures: `FULL` for figures, `SMOKE` to see that every section runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    """The defaults of the options of bench.py, and what has no option."""

    trees: int
    repeats: int
    requests: int
    sizes: str
    data: list[str] | None
    """For the candidates; None: all of it."""
    variants: list[str] | None
    """Variants in the sections with many; None: each of them."""
    runs: int
    """Whole runs of one comparison, whose variation is taken apart; they add up in their file."""
    quick_runs: int
    """Of `lab perfload --preset quick`, which is timed."""
    simulated: int
    """Runs of each design of a comparison."""
    seeded: tuple[tuple[str, int], ...]
    """Loader and trees."""
    blocks: int
    """Of statements under each profiler, in a repeat."""
    recorded_runs: int
    """Of a program in each recording with a flame graph."""
    statements: int
    """That an application is profiled for, while its memory is watched."""
    soaked: int
    """That an application in production runs, while its memory and its files are watched; ten a second for a week."""
    samples: int
    """Of telemetry that is read, and of a run whose report is made."""
    block_s: float
    """Of requests for candidates one after the other, at least."""
    load_s: float
    """Of each load over HTTP."""
    claims_s: float
    """Of each load of claims."""
    together_s: float
    """While both ways to claim work on one database."""
    losing_s: float
    """Of each load whose writes are accounted for."""
    pairs: int
    """Of blocks for the cost of nginx and of replication."""
    block_requests: int
    """Of each of these blocks."""
    history_claims: int
    """Of the check without a fault."""
    fault_claims: int
    """Of each check with a fault."""
    fault_repeats: int


FULL = Amounts(
    trees=1000,
    repeats=6,
    requests=1000,
    sizes="14,143,1000,14286,142858",
    data=None,
    variants=None,
    runs=20,
    quick_runs=2,
    simulated=2000,
    seeded=(("copy", 1000), ("copy", 10_000), ("copy", 100_000), ("sql", 1000), ("http", 30)),
    blocks=40,
    recorded_runs=3,
    statements=1_000_000,
    soaked=6_048_000,
    samples=1_000_000,
    block_s=0.2,
    load_s=2.0,
    claims_s=1.5,
    together_s=30.0,
    losing_s=6.0,
    pairs=30,
    block_requests=40,
    history_claims=25_000,
    fault_claims=150,
    fault_repeats=3,
)
SMOKE = Amounts(
    trees=10,
    repeats=1,
    requests=20,
    sizes="2,4",
    data=["mixed", "flat"],
    variants=["tuned", "cached"],
    runs=2,
    quick_runs=1,
    simulated=10,
    seeded=(("copy", 2), ("sql", 2), ("http", 1)),
    blocks=2,
    recorded_runs=1,
    statements=2000,
    soaked=8000,
    samples=10_000,
    block_s=0.02,
    load_s=0.1,
    claims_s=0.1,
    together_s=0.3,
    losing_s=1.5,
    pairs=1,
    block_requests=5,
    history_claims=0,
    fault_claims=30,
    fault_repeats=1,
)
