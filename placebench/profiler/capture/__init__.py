"""What runs while a request is recorded: event hooks, pending statements, stack samples, TCP counters and plans."""
