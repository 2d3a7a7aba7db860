"""Ways to attach the profiler: WSGI and ASGI middleware, pytest, in-process clients."""
