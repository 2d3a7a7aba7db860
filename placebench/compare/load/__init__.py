"""Load on a service: load runs, steps of increasing load, and the search for capacity."""
