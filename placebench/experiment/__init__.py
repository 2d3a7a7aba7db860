"""Experiments: start servers and load, read the meters, and leave a run folder behind.

`compare_run`, `perfload` and `study` make runs; their data is in `records`, their folder is a `run_folder.RunFolder`.
"""
