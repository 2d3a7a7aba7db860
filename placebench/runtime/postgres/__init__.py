"""A PostgreSQL server to work on: one named by a URL, the embedded one, or one found on the machine.

`open_server` starts a private throwaway server that ends with this process, or wraps the server that the user named. On
a named server it drops only the databases that it created.
"""

from placebench.runtime.postgres.connection import APPLICATION_NAME, check_database, normalise_url, open_connection
from placebench.runtime.postgres.server import Server, open_server

__all__ = ["APPLICATION_NAME", "Server", "check_database", "normalise_url", "open_connection", "open_server"]
