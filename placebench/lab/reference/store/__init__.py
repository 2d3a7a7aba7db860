"""The SQL of the API: one module per resource."""
