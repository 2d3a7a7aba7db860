"""The records of the profiler as pure data: recordings, statements, plans and fingerprints."""
