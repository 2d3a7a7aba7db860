"""The reference service for an ASGI server: `application`, made from the environment when this module is imported.

    uvicorn placebench.lab.reference.asgi:application

The variables are those of `placebench.lab.reference.wsgi`; the variant has an asynchronous driver, such as
tuned+driver:asyncpg, and PLACEBENCH_POOL_SIZE is how many requests of a process may use the database at once.
"""

from placebench.lab.reference.api.event_loop import EventLoopApplication
from placebench.lab.reference.deployment import load_application

application = EventLoopApplication(*load_application("asgi"))
