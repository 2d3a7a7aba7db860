"""The largest values that options accept, on the command line and in files alike.

A larger number is a slip of the finger: it could not be measured in a lifetime.
"""

from typing import Final

TREES: Final = 10_000_000
REPLICATES: Final = 1_000
ROUNDS: Final = 10_000
REPEATS: Final = 10_000
REQUESTS: Final = 100_000_000
RATE_PER_S: Final = 1e6
USERS: Final = 100_000
WORKERS: Final = 1024
"""Processes of a server, and threads in each of them."""
OPERATIONS: Final = 1_000_000
PROXIES: Final = 8
CLIENTS: Final = 64
"""Clients of an emulated network; each needs its own worker and its own connection to PostgreSQL."""
LATENCY_MS: Final = 370.0
"""Latency of one round trip of an emulated network."""
SECONDS: Final = 7 * 24 * 3600.0
BANDWIDTH_MBIT: Final = 1e6
MIN_SEED: Final = -(2**63)
MAX_SEED: Final = 2**63 - 1
"""Seeds are signed numbers of 64 bits."""
