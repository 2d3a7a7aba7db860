"""The reference service for a WSGI server: `application`, made from the environment when this module is imported.

    uwsgi --http-socket 127.0.0.1:8000 --master --need-app --module placebench.lab.reference.wsgi:application

PLACEBENCH_DATABASE_URL   URL of the database; required
PLACEBENCH_READER_URL     URL for requests that only read, such as that of replicas; default: PLACEBENCH_DATABASE_URL
PLACEBENCH_VARIANT        how candidates are found; default "cached", or "tuned" if the database is not PostgreSQL
PLACEBENCH_POOL_SIZE      maximum number of connections per process; default 10
PLACEBENCH_RANDOMIZE_CANDIDATES  "1": a limit selects random candidates instead of the first ones; default "0"
PLACEBENCH_MAX_CANDIDATES        number of candidates at which the search stops; default "-1", no maximum
PLACEBENCH_CANDIDATES_STRATEGY   "depth-first" (default): tree after tree; or "breadth-first": one per tree by turns
PLACEBENCH_CANDIDATES_SEED       number that decides, with each request, which trees come first; default "0"
PLACEBENCH_CACHE_URL      redis://HOST:PORT of a Redis or Valkey; required by the variants that keep responses there
PLACEBENCH_CLAIMS         "at_once" (default): one round trip if the driver is psycopg2; or "step_by_step"
PLACEBENCH_COMPRESS       "1": gzip bodies for clients that accept it; default "0"
PLACEBENCH_PROFILE        "light", "full", "sampled", "external", "flame" or "plans" profiles every request; default ""
PLACEBENCH_PROFILE_DIR    folder for the profiles; required with PLACEBENCH_PROFILE if no telemetry is written
PLACEBENCH_TELEMETRY      folder for telemetry, one file per worker, with each statement if requests are profiled;
                          uWSGI needs --enable-threads for it; see docs/howto/telemetry.md

No connection is opened and no thread is started before uWSGI forks. An error in the environment is reported in one line
on stderr, and the server exits.
"""

from placebench.lab.reference.deployment import load_application

application, _ = load_application("wsgi")
