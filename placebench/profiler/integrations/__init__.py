"""How the profiler is attached: WSGI and ASGI middleware, pytest, in-process clients."""
