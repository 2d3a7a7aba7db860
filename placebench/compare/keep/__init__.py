"""What is kept: run folders and their records."""
