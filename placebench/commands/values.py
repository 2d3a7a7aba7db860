"""What the options take: types for argparse that say what was expected and what was seen.

The key pieces are `whole` and `number`, each a range, and the ones that are made of them.
"""

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from placebench import addresses, limits
from placebench.errors import PlacebenchError

_SHOWN_AT_MOST = 60


def whole(at_least: int, at_most: int) -> Callable[[str], int]:
    """A whole number of this range."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:  # also for more digits than Python reads
            value = at_least - 1
        if not at_least <= value <= at_most:
            raise ArgumentTypeError(f"expected a whole number from {at_least} to {at_most}, saw {_shown(text)}")
        return value

    return read


def number(at_least: float, at_most: float, *, above: bool = False) -> Callable[[str], float]:
    """A number of this range; above: not its lower end."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not at_least <= value <= at_most or (above and value == at_least):
            begin = f"above {at_least:g} and up" if above else f"from {at_least:g}"
            raise ArgumentTypeError(f"expected a number {begin} to {at_most:g}, saw {_shown(text)}")
        return value

    return read


seed = whole(limits.LEAST_SEED, limits.MOST_SEED)
trees = whole(1, limits.TREES)
replicates = whole(0, limits.REPLICATES)
requests = whole(1, limits.REQUESTS)
warm_up = whole(0, limits.REQUESTS)
workers = whole(1, limits.WORKERS)
seconds = number(0, limits.SECONDS, above=True)
share = number(0, 1)


def text(given: str) -> str:
    """Any text but none at all: an empty variable of a shell is a mistake, not a default."""
    if not given:
        raise ArgumentTypeError("expected a text, saw ''")
    return given


def path(text: str) -> Path:
    """A path that may or may not be there; not one that no system takes, such as a name of 300 letters."""
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{_shown(text)}: {getattr(error, 'strerror', None) or error}") from error
    if not text:
        raise ArgumentTypeError("expected a path, saw ''")
    return Path(text)


def request(text: str) -> str:
    """A path and query that can be sent as it is."""
    try:
        return addresses.check_request(text)
    except PlacebenchError as error:
        raise ArgumentTypeError(str(error)) from error


def service_url(text: str) -> str:
    """The URL of a service."""
    try:
        return addresses.service_address(text).geturl()
    except PlacebenchError as error:
        raise ArgumentTypeError(str(error)) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_AT_MOST else f"{text[:_SHOWN_AT_MOST]} …")
