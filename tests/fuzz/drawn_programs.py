"""Random programs for the fuzzer: nested lists of steps, each a name and its arguments, drawn from a seed."""

from random import Random
from typing import Any

MODES = ("light", "full", "sampled", "external", "flame", "plans")
DRIVERS = ("sqlite3", "sqlalchemy")
FETCHES = ("all", "one", "many", "for", "next", "some", "none")
SECONDS = (0.0, 0.0, 0.0, 5e-6, 3e-5, 0.0004, 0.006, 0.02)
_DEEPEST = 3

Program = list[tuple[Any, ...]]


def draw(random: Random, depth: int = 0, *, awaited: bool) -> Program:
    """Return a program; awaited: one for an event loop."""
    steps = ["statement"] * 5 + ["work", "work", "wait", "collect", "many", "failed", "transaction", "rows"]
    if awaited:
        steps += ["statement_awaited"] * 4
    if depth < _DEEPEST:
        steps += ["span", "record", "thread", "pool", "together"]
        if awaited:
            steps += ["tasks", "tasks", "to_thread", "cancelled", "cancelled"]
    return [_step(random, random.choice(steps), depth, awaited=awaited) for _ in range(random.randint(1, 5))]


def _step(random: Random, name: str, depth: int, *, awaited: bool) -> tuple[Any, ...]:
    def below(*, awaited: bool = awaited) -> Program:
        return draw(random, depth + 1, awaited=awaited)

    driver, seconds = random.choice(DRIVERS), random.choice(SECONDS)
    naps = [random.choice(SECONDS) for _ in range(random.randint(0, 5))]
    match name:
        case "statement":
            return name, driver, naps, random.choice(FETCHES)
        case "statement_awaited":
            return name, naps, random.choice(("all", "one", "many", "for", "none"))
        case "rows":
            return name, driver, naps, draw(random, _DEEPEST, awaited=False)
        case "many":
            return name, driver, random.randint(1, 4)
        case "failed":
            return name, driver
        case "transaction":
            return name, driver, random.choice(("commit", "rollback", "savepoint"))
        case "span":
            return name, below()
        case "record":
            return name, random.choice(MODES), below()
        case "thread" | "pool" | "together":
            return name, [below(awaited=False) for _ in range(random.randint(1, 3))], random.choice(MODES)
        case "tasks":
            return name, [below() for _ in range(random.randint(1, 4))]
        case "to_thread":
            return name, below(awaited=False)
        case "cancelled":
            return name, below(), random.choice((0.0, 0.0005, 0.004))
        case _:
            return name, seconds
