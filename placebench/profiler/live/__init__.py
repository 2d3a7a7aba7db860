"""Recordings of programs that run: they come from the processes of a command, and a page shows them as they come."""
