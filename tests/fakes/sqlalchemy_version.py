"""Which SQLAlchemy the tests run on, and marks for tests of what its older versions do not have."""

import pytest
import sqlalchemy

VERSION = tuple(int(part) for part in sqlalchemy.__version__.split(".")[:3] if part.isdigit())


def since(*version: int, reason: str) -> pytest.MarkDecorator:
    """Skip the test on versions of SQLAlchemy before this one."""
    return pytest.mark.skipif(VERSION < version, reason=f"SQLAlchemy {'.'.join(map(str, version))}: {reason}")


since_2_0 = since(2, 0, reason="psycopg 3, insertmanyvalues, typed mapped classes")
since_2_1 = since(2, 1, reason="lazy loads have the texts that the pages show, without labels")
