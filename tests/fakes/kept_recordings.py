"""`Kept`, a store of recordings in memory."""

from placebench.profiler import Recording


class Kept:
    """A store of recordings, in the order in which they end."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []

    def save(self, recording: Recording) -> int:
        """Keep a recording; it takes no bytes of a folder."""
        self.recordings.append(recording)
        return 0

    def requests(self) -> set[tuple[str, str | None, int | None, int]]:
        """Name, route, status and number of statements of each request."""
        return {(each.name, each.route, each.status, each.statement_count) for each in self.recordings}

    def tasks(self) -> list[tuple[str, str, str | None, str | None, int]]:
        """Kind, name, route, error and number of statements of each task, sorted."""
        return sorted(
            ((each.kind, each.name, each.route, each.error, each.statement_count) for each in self.recordings), key=str
        )
