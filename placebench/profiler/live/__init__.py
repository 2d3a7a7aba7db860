"""Live recordings: the processes of a command send them, and a page shows them as they arrive."""
