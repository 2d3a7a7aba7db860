"""The errors that a user can meet, each with the exit code that the command line ends with.

A message says what was seen, what was expected and what to do next, on one line.
Anything that is not a `PlacebenchError` is a bug and leaves with its traceback and exit code 70.
"""

from collections.abc import Iterable


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a question that names the one of *words* most like *word*, for a message; empty if none is like it."""
    from difflib import get_close_matches

    found = get_close_matches(word, words, n=1, cutoff=0.8)
    return f"did you mean {found[0]!r}? " if found else ""


class PlacebenchError(Exception):
    """A mistake of the user, or a problem of the environment: exit code 2."""

    exit_code = 2


class UsageError(PlacebenchError):
    """A command line that cannot be read."""


class GateFailedError(PlacebenchError):
    """A gate failed, requests failed, or the responses of two variants differ: exit code 1."""

    exit_code = 1


class UndecidedError(PlacebenchError):
    """An inconclusive gate, or a run that was invalidated or ended early: exit code 3."""

    exit_code = 3


class MissingExtraError(PlacebenchError):
    """A command needs packages of an extra that is not installed."""


class DatabaseError(PlacebenchError):
    """A database that does not respond, is too old, lacks rights, or holds data that is not ours."""


class TopologyError(PlacebenchError):
    """A topology file that cannot be used: names file, key and what was expected."""


class HistoryError(PlacebenchError):
    """A history that cannot be read, or a commit that it does not hold."""


class ExportError(PlacebenchError):
    """A live Placement that cannot be read, or holds nothing to export."""


class SeedError(PlacebenchError):
    """Seeding stopped, or wrote other data than it should have."""


class VariantError(PlacebenchError):
    """A name of a variant, optimization or way that does not exist, or a revision without the application."""


class ServerError(PlacebenchError):
    """The service under test did not start, died, or its port is taken."""


class HostError(PlacebenchError):
    """A machine cannot be used by SSH, or the connection to it was lost."""


class LoadError(PlacebenchError):
    """A load run that could not be made or has no samples."""


class NoTrafficError(GateFailedError):
    """An application that does not use the database that is measured: its counts would pass any gate."""


class RunFolderError(PlacebenchError):
    """A run folder that is missing, damaged, in use, or of a newer format."""


class TooFewReplicatesError(UndecidedError):
    """Fewer replicates than the interval needs."""


class ProfilerError(PlacebenchError):
    """A recording that cannot be made, read or merged."""
