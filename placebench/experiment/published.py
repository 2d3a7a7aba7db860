"""What others have published about the same question, with where it stands.

The key piece is `PUBLISHED`. The two programs are OpenStack Placement before and after its own optimizations of 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE = 'Chris Dent, "Placement Performance Analysis", 2019: https://anticdent.org/placement-performance-analysis.html'
MACHINE = "a virtual machine with 16 processors and 16 GB, PostgreSQL, uWSGI --http, 4 processes of 10 threads, ab"
TREES = 1000


@dataclass(frozen=True)
class Published:
    """Requests answered each second, before and after."""

    before_per_s: float
    after_per_s: float


PUBLISHED: Mapping[tuple[str, int], Published] = {
    ("nested-perfload", 1): Published(0.40, 0.70),
    ("nested-perfload", 40): Published(1.46, 2.90),
    # Published as 1.2 s and 0.53 s for one request of the flat query.
    ("flat-perfload", 1): Published(1 / 1.2, 1 / 0.53),
}
"""By the topology's name and the number of clients."""
