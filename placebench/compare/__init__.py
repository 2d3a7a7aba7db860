"""Experiments: start servers and load, read the meters, and leave a run folder behind.

`compare_run`, `perfload` and the `studies` make runs; their data is in `records`, their folder is that of `run_folder`.
"""
