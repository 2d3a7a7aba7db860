"""The SELECTs of the candidate search: one function, one query, each with its SQL.

Core that PostgreSQL, SQLite and MariaDB run alike. The key piece is `Reader`, through which every statement goes.
"""
