"""Timed cursor and connection classes of psycopg2, psycopg 3, asyncpg, sqlite3, aiosqlite, PyMySQL, mysqlclient.

`placebench.profiler.drivers.driver_hooks` brings them into use. With other drivers the times inside the driver are "not
measured". A class that the user chose is subclassed, never replaced.
"""
