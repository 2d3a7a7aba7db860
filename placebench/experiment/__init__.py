"""The experiment: starts servers and load, reads the meters, and leaves a run folder behind.

The only room that starts processes or reads a clock for the benchmark. Its data is in `records`, its doors are
`server.serve`, `load.run_load` and `run`.
"""
