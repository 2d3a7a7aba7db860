"""Which indexes the tables have: those that Placement makes, or wider ones that answer without the table."""

from placebench.reference.steps.optimization import Optimization, Way

OPTIMIZATION = Optimization(
    name="indexes",
    step="indexes",
    plain=Way("as_placement", None),
    others=(Way("covering", None, revision="covering_indexes"),),
    why="An index that holds all columns of a query saves the access to the table, and is one more index to write.",
    source="PostgreSQL's index-only scans; Placement makes single columns and keys.",
    metric="cpu_s",
    place="database",
)
