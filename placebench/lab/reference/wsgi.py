"""The reference service for a WSGI server: `application`, made from the environment when this module is imported.

    uwsgi --http-socket 127.0.0.1:8000 --master --need-app --module placebench.lab.reference.wsgi:application

PLACEBENCH_DATABASE_URL   where the data is; required
PLACEBENCH_READER_URL     where requests that only read go, such as replicas; default: to PLACEBENCH_DATABASE_URL
PLACEBENCH_VARIANT        how candidates are found; default "cached", "tuned" where the database is not PostgreSQL
PLACEBENCH_POOL_SIZE      connections a process may hold; default 10
PLACEBENCH_RANDOMIZE_CANDIDATES  "1": under a limit any candidates, not the first ones; default "0"
PLACEBENCH_MAX_CANDIDATES        the search stops at so many; default "-1", at none
PLACEBENCH_CANDIDATES_STRATEGY   "depth-first" (default) or "breadth-first": by which trees it comes to so many
PLACEBENCH_CACHE_URL      of a Redis or Valkey, redis://HOST:PORT; required by the variants that keep responses there
PLACEBENCH_CLAIMS         "at_once" (default), one round trip where psycopg2 is the driver; or "step_by_step"
PLACEBENCH_COMPRESS       "1": bodies in gzip for clients that accept it; default "0"
PLACEBENCH_PROFILE        "light", "full", "sampled", "external", "flame" or "plans" profiles every request; default ""
PLACEBENCH_PROFILE_DIR    where the profiles go; required if there are any and no telemetry is written
PLACEBENCH_TELEMETRY      a folder for telemetry, one file a worker; with a profile each statement too;
                          uWSGI wants --enable-threads for it; see docs/lab/telemetry.md

Nothing is connected to and no thread is started before uWSGI forks. What is wrong with the environment leaves as one
line on stderr, and the server with it.
"""

from placebench.lab.reference.deployment import load_application

application, _ = load_application("wsgi")
