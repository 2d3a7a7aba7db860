"""Programs that run by path in any Python environment and import nothing of placebench."""
