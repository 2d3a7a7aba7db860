"""The commands of the laboratory: the benchmark of allocation candidates, and its reference service."""
