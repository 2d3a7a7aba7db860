"""Errors that a user can encounter, each with the exit code of the command line.

A message says what was seen, what was expected and what to do next, on one line.
Any exception that is not a `PlacebenchError` is a bug: its traceback is printed, and the exit code is 70.
"""

from collections.abc import Iterable


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a question, for a message, with the one of *words* most similar to *word*; '' if none is similar."""
    from difflib import get_close_matches

    found = get_close_matches(word, words, n=1, cutoff=0.8)
    return f"did you mean {found[0]!r}? " if found else ""


class PlacebenchError(Exception):
    """A mistake of the user, or a problem of the environment; exit code 2."""

    exit_code = 2


class UsageError(PlacebenchError):
    """The command line is not valid."""


class CommandNotFoundError(PlacebenchError):
    """The command to run is not there; exit code 127, as of a shell."""

    exit_code = 127


class CommandNotExecutableError(PlacebenchError):
    """The command to run exists and cannot be executed; exit code 126, as in a shell."""

    exit_code = 126


class GateFailedError(PlacebenchError):
    """A gate failed, requests failed, or the responses of two variants differ; exit code 1."""

    exit_code = 1


class UndecidedError(PlacebenchError):
    """A gate is inconclusive, or a run was invalidated or ended early; exit code 3."""

    exit_code = 3


class MissingExtraError(PlacebenchError):
    """A command needs packages of an extra that is not installed."""


class DatabaseError(PlacebenchError):
    """A database does not respond, is too old, lacks permissions, or holds data that placebench did not create."""


class TopologyError(PlacebenchError):
    """A topology file is not valid; the message names the file, the key and the expected value."""


class HistoryError(PlacebenchError):
    """A history file cannot be read, or a commit is not in the history."""


class ExportError(PlacebenchError):
    """A live Placement cannot be read, or has nothing to export."""


class SeedError(PlacebenchError):
    """Seeding stopped, or wrote data other than expected."""


class VariantError(PlacebenchError):
    """A variant, optimization or implementation does not exist, or a revision does not contain the application."""


class ServerError(PlacebenchError):
    """The service under test did not start or died, or its port is in use."""


class HostError(PlacebenchError):
    """A machine cannot be used by SSH, or the connection to it was lost."""


class LoadError(PlacebenchError):
    """A load could not be generated, or gave no samples."""


class FailedRequestsError(LoadError):
    """Requests to the application failed, rather than the means to send them; exit code 1."""

    exit_code = 1


class NoResponseError(FailedRequestsError):
    """The application took a request and sent no response to it within the time limit; a retry would take as long."""

    def __init__(self, message: str, variant: str = "") -> None:
        super().__init__(message)
        self.variant = variant
        """The variant in a replicate that sent no response; empty otherwise."""


class NoTrafficError(GateFailedError):
    """The application does not use the measured database, so its counts of 0 would pass any gate."""


class RunFolderError(PlacebenchError):
    """A run folder is missing, damaged, in use, or of a newer format."""


class TooFewReplicatesError(UndecidedError):
    """There are fewer replicates than the interval needs."""


class ProfilerError(PlacebenchError):
    """A recording cannot be made, read or merged."""
