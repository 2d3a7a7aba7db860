"""The HTTP API of the reference service: routes, handlers, microversions and errors."""
