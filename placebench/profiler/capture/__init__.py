"""Code that runs while a request is recorded: hooks, pending statements, stack samples, TCP counters and plans."""
