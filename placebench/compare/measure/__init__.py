"""How it is measured: replicates, counted and profiled passes, equal responses."""
