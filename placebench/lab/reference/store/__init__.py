"""The SQL of the API: one module per resource, one function per statement."""
