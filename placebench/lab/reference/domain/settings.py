"""Settings of an operator: Placement's options of the candidate search, how claims are written, and the cache URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from placebench.errors import ServerError

DEPTH_FIRST: Final = "depth-first"
BREADTH_FIRST: Final = "breadth-first"
_AT_ONCE: Final = "at_once"
_STEP_BY_STEP: Final = "step_by_step"

_ALL: Final = "-1"
_MAX_CANDIDATES: Final = 2**31 - 1
_MAX_SEED: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """An operator's settings; the defaults are Placement's if it has the option."""

    randomize: bool = False  # whether a limit selects random candidates instead of the first ones
    maximum: int | None = None  # the number of candidates at which the search stops; None: no maximum
    seed: int = 0  # with a limit, decides together with the request which trees come first
    strategy: str = DEPTH_FIRST  # all candidates of one anchor after the other, or one of each anchor by turns
    claims: str = _AT_ONCE  # how PUT /allocations/{consumer} writes
    cache_url: str = field(default="", repr=False)  # URL of the cache service, for variants that keep responses there


DEFAULTS: Final = ServiceSettings()


def read_settings(environment: Mapping[str, str]) -> ServiceSettings:
    """Return the settings in these variables; raise ServerError for the first one that is not valid."""
    randomize = read_choice(environment, "PLACEBENCH_RANDOMIZE_CANDIDATES", ("0", "1")) == "1"
    maximum = environment.get("PLACEBENCH_MAX_CANDIDATES") or _ALL
    if maximum != _ALL and not (maximum.isascii() and maximum.isdigit() and 0 < int(maximum) <= _MAX_CANDIDATES):
        expected = f"a number from 1 to {_MAX_CANDIDATES}, or {_ALL} for all"
        raise ServerError(f"PLACEBENCH_MAX_CANDIDATES: expected {expected}, got {maximum!r}")
    seed = environment.get("PLACEBENCH_CANDIDATES_SEED") or "0"
    if not (seed.isascii() and seed.isdigit() and len(seed) <= 10 and int(seed) <= _MAX_SEED):
        raise ServerError(f"PLACEBENCH_CANDIDATES_SEED: expected a number from 0 to {_MAX_SEED}, got {seed!r}")
    return ServiceSettings(
        randomize=randomize,
        maximum=None if maximum == _ALL else int(maximum),
        seed=int(seed),
        strategy=read_choice(environment, "PLACEBENCH_CANDIDATES_STRATEGY", (DEPTH_FIRST, BREADTH_FIRST)),
        claims=read_choice(environment, "PLACEBENCH_CLAIMS", (_AT_ONCE, _STEP_BY_STEP)),
        cache_url=environment.get("PLACEBENCH_CACHE_URL", ""),
    )


def read_choice(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the variable's value, or the first choice if it is not set; raise ServerError if it is not a choice."""
    value = environment.get(name) or choices[0]
    if value not in choices:
        raise ServerError(f"{name}: expected {' or '.join(choices)}, got {value!r}")
    return value
