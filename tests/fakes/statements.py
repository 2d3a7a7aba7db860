"""SQL for tests: `run` on a database of that address."""

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool


def run(url: str, *statements: str) -> list[object]:
    """Run statements in autocommit; the first column of the last one's rows."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
        return list(result.scalars()) if result.returns_rows else []
