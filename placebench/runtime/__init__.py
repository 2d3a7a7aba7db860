"""What placebench starts: child processes under a supervisor, PostgreSQL, application servers, network emulation."""
