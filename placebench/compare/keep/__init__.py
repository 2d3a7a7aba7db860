"""Run folders and their records."""
