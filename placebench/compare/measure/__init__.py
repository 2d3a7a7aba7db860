"""Measurement of variants: replicates, counted and profiled passes, and the check that responses are equal."""
