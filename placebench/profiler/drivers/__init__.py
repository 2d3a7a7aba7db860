"""Timed cursor and connection classes of psycopg2, psycopg 3, asyncpg, sqlite3, aiosqlite, PyMySQL, mysqlclient.

`placebench.profiler.drivers.driver_hooks` installs them. With other drivers the times inside the driver are "not
measured". A class of the user is subclassed, never replaced.
"""
