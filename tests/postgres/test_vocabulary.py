"""The standard names, added while another program adds its own."""

from concurrent.futures import ThreadPoolExecutor

import os_traits
from sqlalchemy import create_engine, insert, select, text

from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import add_standard_names, migrate

TRAIT = "HW_CPU_X86_AVX2"
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")


def test_a_placement_that_starts_at_the_same_time_is_no_error(database_url: str) -> None:
    """It has added a trait and not committed yet: we wait for it, keep its row, and add the others."""
    migrate(database_url)
    engine = create_engine(database_url)

    def add() -> None:
        with engine.begin() as connection:
            add_standard_names(connection)

    with engine.connect() as placement, engine.connect() as observer, ThreadPoolExecutor(1) as beside:
        placement.execute(insert(tables.traits).values(name=TRAIT))
        theirs = placement.scalar(select(tables.traits.c.id).where(tables.traits.c.name == TRAIT))
        ours = beside.submit(add)
        while not (observer.scalar(WAITING) or ours.done()):
            observer.rollback()
        placement.commit()
        ours.result()
        found = dict(placement.execute(select(tables.traits.c.name, tables.traits.c.id)).all())
    engine.dispose()

    assert set(os_traits.get_traits()) == found.keys()
    assert found[TRAIT] == theirs
