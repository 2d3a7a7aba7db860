"""Random programs for the fuzzer: nested lists of steps, each a name and its arguments, drawn from a seed."""

from random import Random
from typing import Any

MODES = ("light", "full", "sampled", "external", "flame", "plans")
SQLITE = ("sqlite3", "sqlalchemy")
POSTGRESQL = ("psycopg2", "psycopg", "sqlalchemy psycopg2", "sqlalchemy psycopg")
AWAITED_POSTGRESQL = ("asyncpg", "psycopg", "sqlalchemy asyncpg")
FETCHES = ("all", "one", "many", "for", "next", "some", "none")
SECONDS = (0.0, 0.0, 0.0, 5e-6, 3e-5, 0.0004, 0.006, 0.02)
PARTICULAR = (
    "abandoned",
    "callproc",
    "copied_in",
    "nested_savepoints",
    "notified",
    "pipeline",
    "returning",
    "several",
    "two_phase",
)
_DEEPEST = 3

Program = list[tuple[Any, ...]]


def draw(random: Random, depth: int = 0, *, awaited: bool, postgresql: bool = False) -> Program:
    """Return a program; awaited: one for an event loop; postgresql: its drivers are used beside those of SQLite."""
    steps = ["statement"] * 5 + ["work", "work", "wait", "collect", "many", "failed", "transaction"]
    if depth <= _DEEPEST + 1:  # its program runs once per row: more of them inside of each other would take minutes
        steps += ["rows"]
    if awaited:
        steps += ["statement_awaited"] * 4
    if postgresql:
        steps += ["server_cursor", "copied", "particular", "particular"]
        if awaited:
            steps += ["particular_awaited"] * 2
    if depth < _DEEPEST:
        steps += ["span", "record", "thread", "pool", "together", "fork"]
        if awaited:
            steps += ["tasks", "tasks", "to_thread", "cancelled", "cancelled"]
    return [
        _step(random, random.choice(steps), depth, awaited=awaited, postgresql=postgresql)
        for _ in range(random.randint(1, 5))
    ]


def _step(random: Random, name: str, depth: int, *, awaited: bool, postgresql: bool) -> tuple[Any, ...]:
    def below(*, awaited: bool = awaited) -> Program:
        return draw(random, depth + 1, awaited=awaited, postgresql=postgresql)

    driver = random.choice((*SQLITE, *POSTGRESQL) if postgresql else SQLITE)
    seconds = random.choice(SECONDS)
    naps = [random.choice(SECONDS) for _ in range(random.randint(0, 5))]
    match name:
        case "statement":
            return name, driver, naps, random.choice(FETCHES)
        case "statement_awaited":
            driver = random.choice(("aiosqlite", *(AWAITED_POSTGRESQL if postgresql else ())))
            return name, driver, naps, random.choice(("all", "one", "many", "for", "none"))
        case "server_cursor" | "copied":
            return name, random.choice(POSTGRESQL[:2]), naps, random.choice(("all", "one", "many", "for"))
        case "particular":
            return name, random.choice(POSTGRESQL[:2]), random.choice(PARTICULAR), naps
        case "particular_awaited":
            return name, random.choice(("copy_records", "pipeline")), naps
        case "rows":
            return name, driver, naps, draw(random, max(depth, _DEEPEST) + 1, awaited=False, postgresql=postgresql)
        case "many" | "failed":
            return name, driver, random.randint(1, 4)
        case "transaction":
            return name, driver, random.choice(("commit", "rollback", "savepoint"))
        case "span" | "to_thread":
            return name, below(awaited=awaited and name == "span")
        case "record" | "fork":
            return name, random.choice(MODES), below(awaited=awaited and name == "record")
        case "thread" | "pool" | "together":
            return name, [below(awaited=False) for _ in range(random.randint(1, 3))], random.choice(MODES)
        case "tasks":
            return name, [below() for _ in range(random.randint(1, 4))]
        case "cancelled":
            return name, below(), random.choice((0.0, 0.0005, 0.004))
        case _:
            return name, seconds
