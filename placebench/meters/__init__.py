"""Resource use of processes and PostgreSQL: CPU, memory and wait events."""
