"""The largest values that options accept, both on the command line and in files.

A larger value is a typing error: the measurement would not end in a lifetime.
"""

from typing import Final

TREES: Final = 10_000_000
REPLICATES: Final = 1_000
ROUNDS: Final = 10_000
REPEATS: Final = 10_000
REQUESTS: Final = 100_000_000
RATE_PER_S: Final = 1e6
USERS: Final = 100_000
COMPARED_RATE_PER_S: Final = 10_000.0
COMPARED_BOUND_S: Final = 3600.0
COMPARED_USERS: Final = 400
"""Maximum number of users of a comparison, each of which is a thread of the process that sends the requests."""
WORKERS: Final = 1024
"""Maximum number of processes of a server, and of threads in each process."""
OPERATIONS: Final = 1_000_000
PROXIES: Final = 8
CLIENTS: Final = 64
"""Maximum number of clients of an emulated network; each needs its own worker and its own PostgreSQL connection."""
LATENCY_MS: Final = 370.0
"""Maximum latency of one round trip in an emulated network, in milliseconds."""
SECONDS: Final = 7 * 24 * 3600.0
BANDWIDTH_MBIT: Final = 1e6
MIN_SEED: Final = -(2**63)
MAX_SEED: Final = 2**63 - 1
"""Limits of a seed, which is a signed 64-bit integer."""
