"""What processes and PostgreSQL use: CPU, memory and wait events."""
