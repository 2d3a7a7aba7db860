"""What the profiler records, as pure data: recordings, statements, plans and fingerprints."""
