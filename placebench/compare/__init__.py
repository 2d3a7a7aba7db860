"""Experiments: start servers and load, read the meters, and leave a run folder behind.

`compare_run`, `perfload` and the `studies` make runs. The data of a run is in `keep.records`,
its folder in `keep.run_folder`.
"""
