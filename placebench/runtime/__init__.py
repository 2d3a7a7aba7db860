"""What placebench starts: child processes under a supervisor, PostgreSQL, WSGI servers and network emulation."""
