"""The reference service for an ASGI server: `application`, made from the environment when this module is imported.

    uvicorn placebench.lab.reference.asgi:application

The docstring of `placebench.lab.reference.wsgi` lists the variables. The variant must have an asynchronous driver, such
as tuned+driver:asyncpg. PLACEBENCH_POOL_SIZE limits how many requests of one process use the database at once.
"""

from placebench.lab.reference.api.event_loop import EventLoopApplication
from placebench.lab.reference.deployment import load_application

application = EventLoopApplication(*load_application("asgi"))
