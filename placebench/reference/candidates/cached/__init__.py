"""The solver of `dedup` on an in-memory index that a worker keeps, and validates before each response."""
